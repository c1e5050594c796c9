pub mod cap;
pub mod placement;
