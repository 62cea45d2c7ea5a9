"""What an operator does with data that is there: back up, restore, verify, repair, diagnose."""
