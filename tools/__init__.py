"""Tools that examine the code; nothing here is part of the product."""
