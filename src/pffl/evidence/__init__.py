"""Evidence: what was measured of a model, once, and all that is said of it.

`schemas/` has the JSON Schemas of evidence.json, result.json and certificate.json.
"""
