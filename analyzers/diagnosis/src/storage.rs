//! File systems beside the job that suffers: whether it uses them at all, and whether they answer again.
//!
//! A disk that went read-only and that no rank touches explains no hang. Agents say of a failing file system which ranks use
//! it, as far as they can know; what a rank itself says of a place counts more than what was seen in one moment.

use std::time::Duration;

use rankguard_model::{Entity, JobId, Mark, Timestamp};

use crate::{Candidate, Scene, Sign, Strength, What};

/// In a mark of a file system: the ranks that use it as `job/rank`, by commas; [`NOBODY`]; and [`UNKNOWN`] for processes that
/// could not be looked into.
const USED_BY: &str = "used_by";
const NOBODY: &str = "none";
const UNKNOWN: &str = "?";
/// In the same mark: where it is mounted.
const MOUNT: &str = "mount";
/// The class of a file system that does not answer.
const HANG: &str = "filesystem-hang";
/// Under which signature agents tell of a rank that nothing wakes.
const BLOCKED: &str = "ranks.blocked";
/// Signatures by which the kernel, or an agent that asked, says that a file system answers again.
const ANSWERS: [&str; 4] = ["nfs-ok", "lock-server-back", "host.mount_answers_again", "ranks.woken"];
/// How much is left of what is thought of a file system that nobody uses.
const BESIDE: f64 = 0.25;
/// A step this long after a server answered shows that nobody waits for it any more. Progress is reported with a delay.
const GOES_ON: Duration = Duration::from_secs(2);

/// Whether a mark says that a file system which did not answer does so again.
pub fn answers_again(mark: &Mark) -> bool {
    ANSWERS.contains(&mark.signature.as_str())
}

/// Makes less of a candidate that rests on file systems which the job does not use, or which answer again while it stands.
pub(crate) fn weigh(scene: &Scene<'_>, candidate: &mut Candidate) {
    if let Some(job) = scene.job {
        if rests_on(scene, candidate, |sign| is_beside(scene, sign, job)) {
            candidate.strength = Strength::Outcome;
            candidate.score *= BESIDE;
            candidate
                .notes
                .push("No rank of this job uses that file system.".to_owned());
        } else if let Some(users) = scene.signs[candidate.first].field(USED_BY) {
            let users = of_job(users, job).collect::<Vec<_>>();
            if !users.is_empty() {
                let note = format!("It is used here by rank {}.", users.join(", "));
                candidate.notes.push(note);
            }
        }
    }
    if let Some(place) = scene.signs[candidate.first].field(MOUNT).map(str::to_owned) {
        let ranks = scene
            .marks()
            .filter(|(_, sign)| matches!(sign.entity, Entity::Rank { .. }));
        let named = ranks
            .filter(|(_, sign)| names(&sign.text, &place))
            .map(|(index, _)| index);
        let named: Vec<usize> = named.collect();
        candidate.confirm(named, || format!("A rank itself names {place}."));
    }
    let stands = scene.unmarked().any(|(_, sign)| sign.what == What::Stalled);
    if stands && rests_on(scene, candidate, |sign| is_answered(scene, sign)) {
        candidate.strength = candidate.strength.min(Strength::Symptom);
        candidate.score *= 0.5;
        let note = "It answers again, and still no rank makes a step.".to_owned();
        candidate.notes.push(note);
    }
}

/// Whether this is true of every mark that a candidate rests on.
fn rests_on(scene: &Scene<'_>, candidate: &Candidate, is: impl Fn(&Sign) -> bool) -> bool {
    let marks = candidate.support.iter().map(|index| &*scene.signs[index]);
    let mut marks = marks.filter(|sign| sign.mark().is_some()).peekable();
    marks.peek().is_some() && marks.all(is)
}

/// The ranks of a job among those that use something.
fn of_job<'u>(users: &'u str, job: &'u JobId) -> impl Iterator<Item = &'u str> {
    users.split(", ").filter_map(move |user| {
        let (of, rank) = user.rsplit_once('/')?;
        (of == job.as_str()).then_some(rank)
    })
}

/// Whether a sign speaks of a file system that the agent knows no rank of this job to use, and of which no rank speaks.
fn is_beside(scene: &Scene<'_>, sign: &Sign, job: &JobId) -> bool {
    let Some(users) = sign.field(USED_BY) else { return false };
    let known = users == NOBODY || users.split(", ").all(|user| user != UNKNOWN);
    let used = of_job(users, job).next().is_some();
    let place = sign.field(MOUNT);
    known && !used && !scene.marks().any(|(index, _)| touches(scene, index, place))
}

/// Whether a rank itself speaks of a place, or of storage without saying where.
fn touches(scene: &Scene<'_>, index: usize, place: Option<&str>) -> bool {
    let sign = &scene.signs[index];
    if !matches!(sign.entity, Entity::Rank { .. }) {
        return false;
    }
    let stuck = sign.is_signed(BLOCKED);
    let of_storage = || scene.known(index).is_some_and(|class| class.layer() == "storage");
    let anywhere = stuck && sign.field(MOUNT).is_none() || of_storage() && !sign.text.contains('/');
    anywhere || place.is_some_and(|place| names(&sign.text, place) || sign.field(MOUNT) == Some(place))
}

/// Whether a text names a place or something below it. That everything lies below the root says nothing.
fn names(text: &str, place: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    place.len() > 1 && text.match_indices(place).any(|(at, _)| ends(&text[at + place.len()..]))
}

/// Whether a sign tells of a file system that does not answer, and a later one of the same node that it does.
fn is_answered(scene: &Scene<'_>, sign: &Sign) -> bool {
    is_wait(sign) && scene.signs.iter().any(|other| ends_wait(sign, other))
}

pub(crate) fn is_answer(sign: &Sign) -> bool {
    sign.mark().is_some_and(answers_again)
}

fn is_wait(sign: &Sign) -> bool {
    sign.class().is_some_and(|class| class.as_str() == HANG)
}

/// Whether the second sign says that what the first one waits for answers again.
fn ends_wait(waits: &Sign, answers: &Sign) -> bool {
    is_answer(answers) && answers.node() == waits.node() && answers.at >= waits.at && same_server(waits, answers)
}

/// Whether two signs may speak of the same server or mount: those that name none may speak of any.
fn same_server(one: &Sign, other: &Sign) -> bool {
    ["server", MOUNT]
        .iter()
        .all(|name| match (one.field(name), other.field(name)) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        })
}

/// Whether a sign is no longer news: of a file system that answered again before ranks of its node went on, which they last
/// did at `went_on`. `answers` are the signs that say so.
pub(crate) fn is_over(sign: &Sign, answers: &[&Sign], went_on: impl FnOnce() -> Option<Timestamp>) -> bool {
    if answers.is_empty() || !is_wait(sign) {
        return false;
    }
    let Some(went_on) = went_on() else { return false };
    let ended = |answer: &&Sign| ends_wait(sign, answer) && went_on.since(answer.at) >= GOES_ON;
    answers.iter().any(ended)
}
