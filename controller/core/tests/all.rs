//! Tests of the decision core on a small cluster, in one program: each program of tests is compiled and linked anew.

mod cluster;

mod adopt;
mod agent_lives;
mod causes;
mod controller_restart;
mod cordon_reasons;
mod failed_generation;
mod fencing;
mod floors;
mod gate;
mod hang;
mod late_steps;
mod limits;
mod planner;
mod preparation;
mod present_faults;
mod progress;
mod rank_notes;
mod refusals;
mod removal_notices;
mod required_size;
mod restored_journals;
mod resume_sources;
mod resumes;
mod settled_attempts;
mod silent_nodes;
mod spares;
mod starts;
mod stragglers;
mod waiting_jobs;
