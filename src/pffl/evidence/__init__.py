"""Evidence: what was measured of a model, once, and all that is said of it.

`measure` asks, `evidence` keeps, `training` and `unseen` state, `verdict` concludes;
`schemas/` has the JSON Schemas of evidence.json, result.json and certificate.json.
"""
