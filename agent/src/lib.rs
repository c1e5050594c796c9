//! One daemon a node: collectors, triage, spool, uplink, orders, ranks, checkpoint service.
