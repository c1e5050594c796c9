//! Logs in, cases out, without a cluster.
