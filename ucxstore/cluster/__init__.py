"""Clusters, the servers of one store: placement of keys, members, requests to several."""
