"""The schema registry: schemas by group and version, their ids and compatibility; Confluent's and Pravega's API."""
