"""The API of Pravega's schema registry, `/v1/groups`: its official clients and serializers work unchanged."""
