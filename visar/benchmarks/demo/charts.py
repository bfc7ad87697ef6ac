"""Vector drawings for the demo documents: charts and flower plates. Their labels are text in the PDF."""

from __future__ import annotations

import math

from reportlab.graphics.charts.barcharts import VerticalBarChart
from reportlab.graphics.charts.legends import Legend
from reportlab.graphics.charts.lineplots import LinePlot
from reportlab.graphics.charts.piecharts import Pie
from reportlab.graphics.shapes import Circle, Drawing, Ellipse, Group, Line, Rect, String
from reportlab.graphics.widgets.markers import makeMarker
from reportlab.lib.colors import Color, HexColor, black, white

from visar.benchmarks.demo.blocks import BarChart, FlowerPlate, LineChart, PieChart

LABEL_SIZE = 7
LEGEND_HEIGHT = 16
MONTH_LETTERS = "JFMAMJJASOND"


def shades(accent: str, count: int) -> list[Color]:
    """``count`` tints from the accent colour towards white."""
    base = HexColor(accent)
    return [
        Color(*(channel + (1 - channel) * 0.75 * index / max(count - 1, 1) for channel in base.rgb()))
        for index in range(count)
    ]


def _legend(names: tuple[str, ...], colours: list[Color], x: float, y: float, font: str, rows: int) -> Legend:
    legend = Legend()
    legend.x, legend.y, legend.boxAnchor = x, y, "nw"
    legend.colorNamePairs = list(zip(colours, names, strict=True))
    legend.columnMaximum = rows
    legend.fontName, legend.fontSize = font, LABEL_SIZE + 0.5
    legend.dx = legend.dy = 7
    legend.dxTextSpace, legend.deltax, legend.deltay = 4, 62, 12
    legend.alignment = "right"
    legend.strokeWidth = 0.3
    return legend


def bar_chart(block: BarChart, width: float, accent: str, font: str) -> Drawing:
    """Grouped bars with their values above them; a legend only where there is more than one series."""
    several = len(block.series) > 1
    drawing = Drawing(width, 165 + LEGEND_HEIGHT * several)
    chart = VerticalBarChart()
    chart.x, chart.y, chart.width, chart.height = 30, 24, width - 40, 125
    chart.data = [values for _, values in block.series]
    chart.categoryAxis.categoryNames = list(block.categories)
    chart.valueAxis.valueMin = 0
    chart.valueAxis.valueMax = max(max(values) for values in chart.data) * 1.12
    chart.valueAxis.labelTextFormat = "%.1f" if chart.valueAxis.valueMax < 5 else "%.0f"
    chart.valueAxis.maximumTicks = 7
    chart.valueAxis.strokeWidth = chart.categoryAxis.strokeWidth = 0.5
    chart.groupSpacing, chart.barSpacing = 8, 1
    chart.barLabelFormat = block.form
    chart.barLabels.nudge = 6
    for labels in (chart.barLabels, chart.valueAxis.labels, chart.categoryAxis.labels):
        labels.fontName, labels.fontSize = font, LABEL_SIZE
    colours = shades(accent, len(block.series))
    for index, colour in enumerate(colours):
        chart.bars[index].fillColor, chart.bars[index].strokeColor = colour, None
    drawing.add(chart)
    if several:
        names = tuple(name for name, _ in block.series)
        drawing.add(_legend(names, colours, 30, drawing.height, font, rows=1))
    return drawing


def line_chart(block: LineChart, width: float, accent: str, font: str) -> Drawing:
    """Lines with a marker and a value at each point."""
    drawing = Drawing(width, 240 + LEGEND_HEIGHT)
    plot = LinePlot()
    plot.x, plot.y, plot.width, plot.height = 38, 34, width - 56, 190
    plot.data = [list(zip(block.x_values, values, strict=True)) for _, values in block.series]
    every = [value for _, values in block.series for value in values]
    margin = (max(every) - min(every)) * 0.1
    plot.yValueAxis.valueMin, plot.yValueAxis.valueMax = min(every) - margin, max(every) + margin
    plot.yValueAxis.labelTextFormat = plot.xValueAxis.labelTextFormat = "%.0f"
    plot.xValueAxis.valueSteps = list(block.x_values)
    # Half a step of room on both sides, so that no value is written across an axis.
    step = (block.x_values[1] - block.x_values[0]) / 2
    plot.xValueAxis.valueMin, plot.xValueAxis.valueMax = block.x_values[0] - step, block.x_values[-1] + step
    # The axis of x stays at the bottom, although y may be negative.
    plot.xValueAxis.joinAxisMode = "bottom"
    plot.yValueAxis.joinAxisMode = "left"
    plot.lineLabelFormat = block.form
    plot.lineLabels.fontName, plot.lineLabels.fontSize = font, LABEL_SIZE
    plot.lineLabelNudge = 6
    for axis in (plot.xValueAxis, plot.yValueAxis):
        axis.labels.fontName, axis.labels.fontSize, axis.strokeWidth = font, LABEL_SIZE, 0.5
    colours = shades(accent, len(block.series))
    for index, colour in enumerate(colours):
        plot.lines[index].strokeColor, plot.lines[index].strokeWidth = colour, 1.4
        plot.lines[index].symbol = makeMarker("FilledCircle", size=3)
        plot.lines[index].symbol.fillColor = plot.lines[index].symbol.strokeColor = colour
    drawing.add(plot)
    middle = 38 + plot.width / 2
    drawing.add(String(middle, 6, block.x_title, fontName=font, fontSize=LABEL_SIZE + 0.5, textAnchor="middle"))
    title = Group(String(0, 0, block.y_title, fontName=font, fontSize=LABEL_SIZE + 0.5, textAnchor="middle"))
    title.translate(10, 34 + plot.height / 2)
    title.rotate(90)
    drawing.add(title)
    drawing.add(_legend(tuple(name for name, _ in block.series), colours, 38, drawing.height, font, rows=1))
    return drawing


def pie_chart(block: PieChart, width: float, accent: str, font: str) -> Drawing:
    """A pie on the left and its legend, with the values, on the right."""
    size = min(112.0, width * 0.45)
    drawing = Drawing(width, size + 18)
    pie = Pie()
    pie.x, pie.y, pie.width, pie.height = 8, 8, size, size
    pie.data = [value for _, value in block.slices]
    pie.labels = None
    pie.simpleLabels = 1
    pie.slices.strokeColor, pie.slices.strokeWidth = white, 0.8
    colours = shades(accent, len(block.slices))
    for index, colour in enumerate(colours):
        pie.slices[index].fillColor = colour
    drawing.add(pie)
    names = tuple(f"{name} {block.form % value}" for name, value in block.slices)
    drawing.add(_legend(names, colours, size + 28, size - 4, font, rows=len(names)))
    return drawing


def flower_plate(block: FlowerPlate, width: float, accent: str, font: str) -> Drawing:
    """The flower as seen from above, and the strip of the twelve months."""
    drawing = Drawing(width, 120)
    drawing.add(Rect(0, 0, 120, 120, fillColor=HexColor("#e7efe2"), strokeColor=HexColor(accent), strokeWidth=0.6))
    # Fewer petals are broader, so that the flower is closed in itself.
    breadth = min(20.0, 95.0 / block.petals)
    for index in range(block.petals):
        petal = Group(Ellipse(0, 27, breadth, 24, fillColor=HexColor(block.colour), strokeColor=black, strokeWidth=0.4))
        petal.translate(60, 60)
        petal.rotate(360 * index / block.petals)
        drawing.add(petal)
    drawing.add(Circle(60, 60, 10, fillColor=HexColor(block.heart), strokeColor=black, strokeWidth=0.4))
    for index in range(9):
        angle = 2 * math.pi * index / 9
        drawing.add(Circle(60 + 6 * math.cos(angle), 60 + 6 * math.sin(angle), 0.9, fillColor=black, strokeColor=None))
    cell = (width - 140) / 12
    drawing.add(String(140, 76, "Months of bloom", fontName=font, fontSize=9))
    for index, letter in enumerate(MONTH_LETTERS):
        blooms = block.months[0] <= index + 1 <= block.months[1]
        fill = HexColor(block.heart if block.colour.lower() > "#f0f0f0" else block.colour) if blooms else white
        left = 140 + index * cell
        drawing.add(Rect(left, 48, cell, 20, fillColor=fill, strokeColor=HexColor(accent), strokeWidth=0.5))
        drawing.add(String(left + cell / 2, 36, letter, fontName=font, fontSize=8, textAnchor="middle"))
    drawing.add(Line(140, 28, width, 28, strokeColor=HexColor(accent), strokeWidth=0.5))
    return drawing
