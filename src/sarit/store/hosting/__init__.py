"""The containers of a store: opening, closing, hand-over to other stores, and health."""
