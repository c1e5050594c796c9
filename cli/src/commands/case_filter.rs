//! Selection and order of the cases that `rankguard cases` lists.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use rankguard_faults::{Catalogue, classes};
use rankguard_model::{Case, CaseId, CaseQuery, NodeId, StatusView, Timestamp};

use crate::config::nearest;
use crate::error::CliError;

/// Filter for cases. Each option narrows the list further.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CaseFilterArgs {
    /// Show only cases of this job
    #[arg(long)]
    job: Option<String>,
    /// Show only cases that blame this node or contain evidence of it
    #[arg(long)]
    node: Option<String>,
    /// Show only cases of this failure class, by their verdict or its newest correction
    #[arg(long)]
    class: Option<String>,
    /// Show only cases of this layer (hardware, network, user-code ...)
    #[arg(long)]
    layer: Option<String>,
    /// Show only cases in this category of a published taxonomy
    #[arg(long, value_name = "TAXONOMY:CATEGORY")]
    taxonomy: Option<String>,
    /// Show only cases that began at or after this time: 30m, 2h, 7d ago, or 2026-11-24T10:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// Show only cases that began before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
    /// Maximum number of cases to list
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Show only cases older than this one, the last one of the previous page
    #[arg(long, value_name = "CASE")]
    after: Option<u64>,
    /// Leave out cases of drills and simulations
    #[arg(long)]
    no_drills: bool,
    /// Show only cases that are open, recovering or await a decision of an operator
    #[arg(long)]
    open: bool,
}

/// A page of cases, newest first.
pub(crate) struct CasePage {
    pub(crate) cases: Vec<Case>,
    /// Number of older cases beyond this page.
    pub(crate) older: usize,
}

impl CaseFilterArgs {
    /// Rejects names that are no known class, layer, category, job or node: a mistyped name must not look like an empty
    /// list. `status` adds known jobs and nodes.
    pub(crate) fn check(&self, cases: &[Case], status: Option<&StatusView>) -> Result<(), CliError> {
        let catalogue = Catalogue::builtin();
        if let Some(class) = &self.class {
            let known = catalogue.classes().filter(|class| class.id.as_str() != classes::NONE);
            let known = known.map(|class| class.id.as_str());
            let seen = cases.iter().map(|case| case.verdict.class.as_str());
            require(
                "class",
                class,
                known.chain(seen).collect(),
                "`rankguard taxonomy crosswalk` lists the classes",
            )?;
        }
        if let Some(layer) = &self.layer {
            let known = catalogue.classes().map(|class| class.layer.as_str());
            let seen = cases.iter().map(|case| case.verdict.layer.as_str());
            let known: BTreeSet<&str> = known.chain(seen).collect();
            let layers = known.iter().copied().collect::<Vec<_>>().join(", ");
            require("layer", layer, known, &format!("layers: {layers}"))?;
        }
        if let Some(wanted) = &self.taxonomy {
            let hint = "write TAXONOMY:CATEGORY, such as hu-nsdi2024:node-failure; `rankguard taxonomy ls` lists the taxonomies, \
                        `rankguard taxonomy show TAXONOMY` its categories";
            let known = wanted
                .split_once(':')
                .and_then(|(taxonomy, category)| catalogue.category_name(taxonomy, category));
            // Taxonomies of controller.catalogue are known by their cases only.
            let is_used = cases.iter().any(|case| case.is_in_category(wanted));
            if known.is_none() && !is_used {
                return Err(CliError::usage(format!("there is no category {wanted:?}"), hint));
            }
        }
        if let Some(job) = &self.job {
            let of_cases = cases.iter().filter_map(|case| case.job.as_ref());
            let of_status = status
                .into_iter()
                .flat_map(|status| &status.jobs)
                .map(|job| &job.spec.id);
            let known = of_cases.chain(of_status).map(|job| job.as_str()).collect();
            require("job", job, known, "`rankguard status jobs --all` lists the jobs")?;
        }
        if let Some(node) = &self.node {
            let of_cases = cases.iter().flat_map(Case::nodes).map(NodeId::as_str);
            let of_status = status.into_iter().flat_map(|status| &status.nodes);
            let known = of_cases.chain(of_status.map(|node| node.node.as_str())).collect();
            require("node", node, known, "`rankguard status nodes` lists the nodes")?;
        }
        Ok(())
    }

    /// Returns the newest matching cases: at most `--limit`, else at most `limit`.
    pub(crate) fn page(&self, mut cases: Vec<Case>, limit: Option<usize>) -> CasePage {
        let query = self.query();
        let is_after = |case: &Case| self.after.is_none_or(|after| case.id < CaseId(after));
        cases.retain(|case| query.matches(case) && is_after(case));
        cases.sort_by_key(|case| std::cmp::Reverse(case.id));
        let all = cases.len();
        let asked = self.limit.and_then(|limit| usize::try_from(limit).ok());
        cases.truncate(asked.or(limit).unwrap_or(usize::MAX));
        let older = all - cases.len();
        CasePage { cases, older }
    }

    /// Returns the beginning of the selected time, which is `--since` or the first of these cases, and its end, which is
    /// `--until` or the end of what the source knows.
    pub(crate) fn window(&self, cases: &[Case], end: Timestamp) -> (Option<Timestamp>, Timestamp) {
        let first = cases.iter().map(|case| case.first_at).min();
        (self.since.or(first), self.until.unwrap_or(end))
    }

    fn query(&self) -> CaseQuery {
        CaseQuery {
            job: self.job.clone(),
            node: self.node.clone(),
            class: self.class.clone(),
            layer: self.layer.clone(),
            category: self.taxonomy.clone(),
            since: self.since,
            until: self.until,
            without_drills: self.no_drills,
            only_open: self.open,
        }
    }
}

fn require(what: &str, wanted: &str, known: BTreeSet<&str>, hint: &str) -> Result<(), CliError> {
    if known.contains(wanted) {
        return Ok(());
    }
    let hint = match nearest(wanted, known.iter().copied()) {
        Some(near) => format!("did you mean {near}? {hint}"),
        None => hint.to_owned(),
    };
    Err(CliError::usage(format!("there is no {what} {wanted:?}"), hint))
}

/// Returns the time of this machine's clock.
pub(super) fn now() -> Timestamp {
    Timestamp(0).after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Parses `30m`, `2h`, `7d` ago, or a date with a time of day as in RFC 3339; without an offset it is UTC.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    let now = now();
    let unit = |end: char| match end {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3_600),
        'd' => Some(86_400),
        _ => None,
    };
    let ago = text.chars().last().and_then(unit).and_then(|seconds: u64| {
        let count = text[..text.len() - 1].parse::<u64>().ok()?;
        Some(Duration::from_secs(count.checked_mul(seconds)?))
    });
    match ago {
        Some(ago) => Ok(now.before(ago)),
        None => date(text).ok_or_else(|| format!("{text:?} is not a time; write 30m, 2h, 7d or 2026-11-24T10:00:00Z")),
    }
}

fn date(text: &str) -> Option<Timestamp> {
    let read: toml::value::Datetime = text.parse().ok()?;
    let date = read.date?;
    let seconds = read.time.map_or((0, 0), |time| {
        let of_day = i64::from(time.hour) * 3_600 + i64::from(time.minute) * 60;
        (
            of_day + i64::from(time.second.unwrap_or(0)),
            i64::from(time.nanosecond.unwrap_or(0)),
        )
    });
    let offset = match read.offset {
        Some(toml::value::Offset::Custom { minutes }) => i64::from(minutes) * 60,
        Some(toml::value::Offset::Z) | None => 0,
    };
    let days = days_from_civil(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let whole = days * 86_400 + seconds.0 - offset;
    Some(Timestamp(whole.checked_mul(1_000_000_000)?.checked_add(seconds.1)?))
}

/// Days since 1970-01-01 of a day of the Gregorian calendar (Howard Hinnant, chrono-compatible low-level date
/// algorithms).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let of_era = shifted.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use rankguard_model::{CaseNote, CaseNoteKind};

    use super::*;
    use rankguard_report::sample;

    #[test]
    fn times_are_read_as_dates_and_as_ages() {
        assert_eq!(moment("1970-01-01T00:00:01Z"), Ok(Timestamp(1_000_000_000)));
        assert_eq!(moment("2026-11-24T10:00:00+02:00"), moment("2026-11-24T08:00:00Z"));
        assert_eq!(moment("2024-02-29"), Ok(Timestamp(1_709_164_800_000_000_000)));
        let hour = moment("1h").expect("an age");
        assert!(hour > moment("2h").expect("an age") && hour < moment("0s").expect("now"));
        for wrong in ["", "yesterday", "5", "h", "-1h", "2026-13-01", "99999999999999999999d"] {
            assert!(moment(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn pages_are_newest_first_and_go_on_behind_the_last() {
        let (_, cases) = sample::cluster();
        let all = cases.len();
        assert!(all > 2);
        let first = CaseFilterArgs {
            limit: Some(2),
            ..CaseFilterArgs::default()
        };
        let page = first.page(cases.clone(), None);
        assert!(page.cases[0].id > page.cases[1].id);
        assert_eq!(page.older, all - 2);
        let next = CaseFilterArgs {
            after: Some(page.cases[1].id.0),
            ..CaseFilterArgs::default()
        };
        let next = next.page(cases, None);
        assert_eq!((next.cases.len(), next.older), (all - 2, 0));
        assert!(next.cases.iter().all(|case| case.id < page.cases[1].id));
    }

    /// Finding 14 of the first operator: the hints named `rankguard taxonomy`, which only prints its usage.
    #[test]
    fn hints_name_commands_that_list_the_names() {
        let (status, cases) = sample::cluster();
        let check = |filter: CaseFilterArgs, expect: &str| {
            let lines = filter.check(&cases, Some(&status)).expect_err("unknown").lines();
            assert!(lines.contains(expect), "{expect:?} is not in:\n{lines}");
        };
        let filter = CaseFilterArgs::default;
        check(
            CaseFilterArgs {
                class: Some("q".to_owned()),
                ..filter()
            },
            "`rankguard taxonomy crosswalk` lists the classes",
        );
        check(
            CaseFilterArgs {
                class: Some("nope".to_owned()),
                ..filter()
            },
            "hint: `rankguard taxonomy crosswalk` lists the classes",
        );
        check(
            CaseFilterArgs {
                layer: Some("q".to_owned()),
                ..filter()
            },
            "layers: ",
        );
        check(
            CaseFilterArgs {
                taxonomy: Some("q".to_owned()),
                ..filter()
            },
            "`rankguard taxonomy ls` lists the taxonomies",
        );
    }

    #[test]
    fn a_corrected_case_is_listed_by_its_corrected_class() {
        let (_, mut cases) = sample::cluster();
        let corrected = cases[0].id;
        cases[0].notes.push(CaseNote {
            at: Timestamp(1),
            by: "ann".to_owned(),
            text: String::new(),
            kind: CaseNoteKind::Corrected {
                class: "clock-skew".into(),
            },
        });
        let listed = |class: &str| {
            let filter = CaseFilterArgs {
                class: Some(class.to_owned()),
                ..CaseFilterArgs::default()
            };
            let page = filter.page(cases.clone(), None);
            page.cases.iter().map(|case| case.id).collect::<Vec<_>>()
        };
        assert_eq!(listed("clock-skew"), [corrected]);
        assert!(listed(cases[0].verdict.class.as_str()).contains(&corrected));
    }

    #[test]
    fn unknown_names_are_errors_with_a_suggestion() {
        let (status, cases) = sample::cluster();
        let lines = |filter: CaseFilterArgs| filter.check(&cases, Some(&status)).expect_err("unknown").lines();
        let class = lines(CaseFilterArgs {
            class: Some("gpu-fallen-of-bus".to_owned()),
            ..CaseFilterArgs::default()
        });
        assert!(class.contains("did you mean gpu-fallen-off-bus?"), "{class}");
        for (node, layer, taxonomy) in [
            (Some("n99"), None, None),
            (None, Some("cosmic"), None),
            (None, None, Some("hu")),
        ] {
            let filter = CaseFilterArgs {
                node: node.map(str::to_owned),
                layer: layer.map(str::to_owned),
                taxonomy: taxonomy.map(str::to_owned),
                ..CaseFilterArgs::default()
            };
            assert!(filter.check(&cases, Some(&status)).is_err());
        }
    }
}
