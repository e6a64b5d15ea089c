"""What tests use of the inside of packages, by name.

A test imports the front of a package (`pffl.methods`), or a name from here; no other
file of the tests knows in which module something lies, so that modules can move. Names
are loaded when they are used: collecting tests imports little.
"""

from __future__ import annotations

from importlib import import_module

#: Names by module of `pffl`. "name:other" is called "other" here; ":other" is a module.
HOMES = {
    "_audit": "Audited join_probabilities read_coefficients",
    "_certify": "INSIDE MAX_MARGIN",
    "_monitor": "Batch Monitor Settings held read:read_monitor write:write_monitor",
    "_feasible": "find_alone",
    "privacy.run": (
        ":running planned run:private_run BETS:noisy_plan_BETS PARTS bets_of ranges_of"
    ),
    "_report.card": "MAX_INPUTS input_effects plain table:reports_card_table",
    "_report.page": "embedded render write_report",
    "_report.svg": "as_html",
    "_verify": ":verifier",
    "bounds.alarm": ":alarm",
    "bounds.checks": "Interval",
    "bounds.gap": ":gap",
    "bounds.infeasible": "FAR NEAR Support support",
    "bounds.mean": ":mean :bounds_rates BETS:mean_BETS Bets Moments",
    "cli": "app",
    "cli.terminal": ":terminal",
    "cli.options": "COMMANDS_GONE Draft OPTIONS OPTIONS_GONE bound in_options",
    "constraints": "EVERY_SILO",
    "figures": "axis_of",
    "data.columns": ":columns Column count_words encode_values",
    "data.partition": ":partition draw_parts split_index",
    "data.read": ":reading find_delimiter read_chunks read_table",
    "data.rows": "as_csr as_inputs",
    "data.schema": "named",
    "data.table": "TableOptions",
    "datasets._acs": (
        ":datasets_acs FIPS RACES RELP_OF_RELSHIPP SEXES TASKS archive_name"
    ),
    "datasets._celeba": ":datasets_celeba",
    "datasets._fetch": ":datasets_fetch RemoteFile cache_folder fetch",
    "datasets._people": "ADULT_FILES COMPAS_FILE read_adult read_compas",
    "deploy.coordinator": ":coordinator Address deploy",
    "deploy.federation": "changes",
    "deploy.flower_app": ":flower_app",
    "deploy.flower_mixin": "GroupSums KEY Order group_weights",
    "deploy.join": "Joining SiteFolder SiteServer",
    "deploy.keys": "FILE:site_key_FILE SiteLine announced node_key read_lines shared",
    "deploy.messages": (
        "Answer HOLDERS MOST_QUERIES PROTOCOL Request bodies_digest "
        "first_transcript framed_digest masked_body next_transcript query_body "
        "read_answer read_masked read_request read_total signed_content "
        "write:write_answer write:write_request"
    ),
    "deploy.rows": ":prepared_rows",
    "deploy.secure_sum": ":secure_sum",
    "deploy.server": "RunLog STATE secured",
    "deploy.store": "RunRecord SiteMemory",
    "engines.local": ":local equal_rows",
    "evidence.conclude": "conclude EXIT_CODES Conclusions :evidence_conclude",
    "evidence.figures": (
        ":figures COUNTED Judged certified_models fieller log_sum_upper upper_rates"
    ),
    "evidence.rates": "group_means mean_losses metrics",
    "evidence.record": (
        ":evidence About Before Candidate Cell Choice Data Evidence Least Missing "
        "ModelFacts:Model ModelPath Pair Proofs Sample Declared:Terms Training "
        "Figures BoundTrial:evidence_evidence_Trial"
    ),
    "evidence.looks": "LOOKS Look Looks look read_looks",
    "evidence.proofs": ":proofs",
    "evidence.statements": ":statements Assumption Certificate Said Statement",
    "evidence.tables": ":tables",
    "experiments.comparison": "L2_GRID points_of",
    "methods.ascent": "Ascent example_weights",
    "methods.auto": ":auto hessians_fit",
    "methods.local": "MIN_SCALE SECOND_MOMENT_DECAY",
    "methods.exact": ":exact",
    "methods.fairgrad": "Notion:methods_fairgrad_Notion constants",
    "methods.fcfl": "Gaps guarded_step least_norm stage_one stage_two",
    "methods.first_order": ":first_order SLOW_ROUNDS",
    "methods.local_bgl": "SiloBounds",
    "methods.saddle": ":saddle",
    "methods.saddle_bounds": "candidate_multipliers lower_values relevant_cells",
    "models.base": "Step",
    "models.linear": "NumericModel",
    "models.network": "Network",
    "models.predictor": "Predictor score_file read_model write_model",
    "models.external": "Probabilities Reported RECIPES section_of",
    "models.scaled": "ScaledRows",
    "privacy.terms": "composed delta_of epsilon_of mu_of",
    "processors": ":processors",
    "privacy.discrete": (
        ":discrete Source discrete_gaussian secret_source seeded_source"
    ),
    "queries.base": "RowRange array vector",
    "queries.expand": "curvature unfolded",
    "queries.evaluate": "STAKES",
    "queries.release": "Adding blocks_of",
    "runs": ":directory derived",
    "config": "keys",
}
PLACES = {
    entry.rpartition(":")[2]: (module, entry.partition(":")[0])
    for module, names in HOMES.items()
    for entry in names.split()
}


def __getattr__(name: str) -> object:
    if name not in PLACES:
        raise AttributeError(f"tests.inside has no '{name}'")
    module, own = PLACES[name]
    found = import_module(f"pffl.{module}")
    return getattr(found, own) if own else found
