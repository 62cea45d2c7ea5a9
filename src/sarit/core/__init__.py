"""Names, key space, cuts, policies, errors: values that everything else uses."""
