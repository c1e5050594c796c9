//! Catalogue of failure classes, published taxonomies, signatures and the matcher.
