//! Published and own failure data as canonical tables.
