//! Operation timings in, who slows a job down and by how much out.
