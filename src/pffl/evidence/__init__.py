"""Evidence: what was measured of a model, once, and all statements on it.

    record       Evidence: what was declared and measured, plain sums
    proofs       what is proved of all models: gaps, and how low bounds can go
    measure      the one builder of Evidence
    figures      every figure that follows from it, computed once
    conclude     verdicts, and everything else that is shown: Conclusions
    statements   the claims of a certificate, with their grounds, in words
    tables       tables and remarks, for whoever draws them
    looks        reuse of test rows

`schemas/certificate.json` is the JSON Schema of certificate.json.
"""
