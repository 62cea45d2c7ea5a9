"""What looks at the code from outside; nothing here is part of the product."""
