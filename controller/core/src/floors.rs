//! Generation floors: numbers that nodes have received in orders and that no job may be given again (RG-3).

use std::collections::BTreeMap;

use rankguard_model::{Generation, JobId};
use serde::{Deserialize, Serialize};

/// Jobs with a floor; beyond it the lowest floors are dropped. Agents report theirs at every join and refuse orders
/// below, so a dropped floor costs one refused order.
const JOBS_MAX: usize = 4_096;

/// Highest number that a node may report. Generations count restarts of one job, so a higher number is not plausible.
const GENERATION_MAX: Generation = Generation(1 << 40);

/// Newest generation that a node has reported, by job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationFloors {
    floors: BTreeMap<JobId, Generation>,
}

impl GenerationFloors {
    /// Returns the newest reported generation of a job; 0 if unknown.
    pub fn of(&self, job: &JobId) -> Generation {
        self.floors.get(job).copied().unwrap_or_default()
    }

    /// Raises the floor of a job. Returns false and changes nothing if the number is above [`GENERATION_MAX`].
    pub(crate) fn raise(&mut self, job: &JobId, generation: Generation) -> bool {
        if generation > GENERATION_MAX {
            return false;
        }
        if self.of(job) >= generation {
            return true;
        }
        self.floors.insert(job.clone(), generation);
        if self.floors.len() > JOBS_MAX {
            let others = self.floors.iter().filter(|(known, _)| *known != job);
            let lowest = others.min_by_key(|(_, floor)| **floor).map(|(known, _)| known.clone());
            lowest.map(|lowest| self.floors.remove(&lowest));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_never_sinks() {
        let mut floors = GenerationFloors::default();
        let job = JobId::from("train");
        assert!(floors.raise(&job, Generation(5)));
        assert!(floors.raise(&job, Generation(3)));
        assert_eq!(floors.of(&job), Generation(5));
        assert!(!floors.raise(&job, Generation(u64::MAX)));
        assert_eq!(floors.of(&job), Generation(5));
    }

    #[test]
    fn the_lowest_floors_are_forgotten_first() {
        let mut floors = GenerationFloors::default();
        for number in 0..=JOBS_MAX as u64 {
            floors.raise(&JobId::from(format!("job-{number}")), Generation(number + 1));
        }
        assert_eq!(floors.of(&JobId::from("job-0")), Generation(0));
        assert_eq!(floors.of(&JobId::from("job-1")), Generation(2));
    }
}
