"""The algorithms over rows of integers, for what still reads them in that form."""
