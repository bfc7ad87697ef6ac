"""Documents to read: PDFs, images and folders of images, as page images and as words with boxes."""

from visar.documents.discovery import IMAGE_SUFFIXES, find_document
from visar.documents.ocr import NoOcr, OcrEngine
from visar.documents.rapid_ocr import RapidOcr
from visar.documents.reader import DocumentReader
from visar.documents.tesseract import Tesseract

__all__ = ["IMAGE_SUFFIXES", "DocumentReader", "NoOcr", "OcrEngine", "RapidOcr", "Tesseract", "find_document"]
