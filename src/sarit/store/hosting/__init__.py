"""Which containers a store has open, and how it opens and closes them."""
