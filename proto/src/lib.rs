//! The wire (rankguard/v1) and the only place where wire meets model.
