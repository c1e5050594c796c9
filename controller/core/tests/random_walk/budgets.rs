//! Restart budgets checked against hidden truth: a job that commits between failures is never stopped for its budget.

use rankguard_core::{Job, JobPhase};
use rankguard_model::{Generation, JobId, Step};

/// Progress of one job between its failures.
#[derive(Default)]
pub(super) struct BudgetJudge {
    generation: Generation,
    furthest: Option<Step>,
    /// Restarts after failures since the last newer commit.
    restarts: u32,
    is_stopped: bool,
}

impl BudgetJudge {
    /// Checks a job after an event.
    pub(super) fn judge(&mut self, name: &JobId, job: &Job) {
        let is_restarted = job.generation() > self.generation && job.plan().is_some_and(|plan| plan.case.is_some());
        self.generation = job.generation();
        self.restarts += u32::from(is_restarted);
        let newest = job
            .checkpoints
            .committed
            .last()
            .filter(|view| Some(view.step) > self.furthest);
        if let Some(view) = newest {
            self.furthest = Some(view.step);
            // Work of an ended generation was done before the failure that is being answered.
            self.restarts = self.restarts.min(u32::from(view.generation < job.generation()));
            assert!(
                job.fruitless_restarts() <= self.restarts,
                "{name} has committed and keeps {} restarts",
                job.fruitless_restarts()
            );
        }
        let JobPhase::Stopped { reason } = job.phase() else {
            return;
        };
        let is_spent = reason.contains("brought it no further") || reason.contains("would show progress");
        if !std::mem::replace(&mut self.is_stopped, true) && is_spent {
            let restarts = self.restarts;
            let most = job.spec.max_restarts;
            assert!(
                restarts >= most,
                "{name} was stopped after {restarts} of {most} restarts"
            );
        }
    }
}
