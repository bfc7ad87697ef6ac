"""Files of evidence boxes, read leniently: what is wrong in them is found and listed, row by row."""
