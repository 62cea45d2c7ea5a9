"""Schemas and codecs of payloads: to columns of Arrow and back, whoever reads them."""
