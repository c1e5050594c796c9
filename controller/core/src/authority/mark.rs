//! Authorisation of classifications by subject.

use rankguard_faults::classes;
use rankguard_model::{Classification, EvidenceSource, Generation, Step};

use super::subject::{EvidenceSubject, RankSubject};
use super::{AuthorityResult, AuthorityRule, SubmittedEvidence, refuse, void};

/// Prefix of the classes of unknown codes (RG-10).
const UNKNOWN: &str = "unknown";

/// Checks the classifications of a claim against its subject.
pub(super) fn check(claim: SubmittedEvidence<'_>, subject: &EvidenceSubject<'_>) -> AuthorityResult {
    let evidence = claim.evidence;
    if let Some(mark) = evidence
        .marks
        .iter()
        .find(|mark| !(0.0..=1.0).contains(&mark.confidence))
    {
        let class = &mark.class;
        let confidence = mark.confidence;
        return refuse(
            AuthorityRule::OutOfRange,
            format!("its confidence in {class} is {confidence}, outside 0 to 1"),
        );
    }
    if let EvidenceSubject::Job(about) = subject
        && !about.is_current
        && !evidence.marks.is_empty()
    {
        let name = &about.job.spec.id;
        return void(format!(
            "job {name} no longer has ranks on the node, and only nodes of a job classify its failures"
        ));
    }
    for mark in &evidence.marks {
        if !is_known(claim, mark) {
            return void(format!("the controller's catalogue has no class {}", mark.class));
        }
        if mark.class.as_str() == classes::CHECKPOINT_CORRUPT && evidence.source == EvidenceSource::Checkpoint {
            check_damage(subject, mark)?;
        }
    }
    Ok(())
}

fn is_known(claim: SubmittedEvidence<'_>, mark: &Classification) -> bool {
    let class = &mark.class;
    class.as_str().starts_with(UNKNOWN) || claim.state.catalogue().class(class).is_some()
}

/// Refuses a damage report of a rank about a checkpoint that its generation was not ordered to load.
fn check_damage(subject: &EvidenceSubject<'_>, mark: &Classification) -> AuthorityResult {
    let EvidenceSubject::Rank(about) = subject else {
        return Ok(());
    };
    let number = |field: &str| mark.fields.get(field)?.parse::<u64>().ok();
    let (Some(step), Some(generation)) = (number("step"), number("generation")) else {
        return Ok(());
    };
    let RankSubject { job, plan, .. } = about;
    let named = (Generation(generation), Step(step));
    match job.launch_record.restored_from(plan.generation) {
        None if about.is_current => refuse(
            AuthorityRule::WrongCheckpoint,
            format!("it calls step {step} damaged, and its generation was told to load none"),
        ),
        None => void(format!(
            "what generation {} was told to load was forgotten",
            plan.generation
        )),
        Some(points) if points.contains(&named) => Ok(()),
        Some(_) => refuse(
            AuthorityRule::WrongCheckpoint,
            format!("it calls step {step} of generation {generation} damaged, which it was not told to load"),
        ),
    }
}
