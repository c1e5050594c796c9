//! loghub samples: 2,000 parsed lines of a system's log with templates.

use crate::csv::DelimitedFile;
use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::time;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "loghub",
    title: "loghub 2k samples: system logs taken apart, with templates and (BGL) alert labels",
    licence: "free for research and academic work, the notice kept with every copy",
    citation: "J. Zhu et al., Loghub: A Large Collection of System Log Datasets for AI-driven Log Analytics, ISSRE 2023",
    home: "github.com/logpai/loghub",
    clock: "Unix seconds where a line has them, else wall clock without offset counted as UTC; null where a line names no year",
    traps: &[
        "the samples are spread over the whole log: gaps between lines are no times between failures",
        "a label is not a severity; the Thunderbird sample has no alert at all",
        "the raw lines beside a structured file are the same lines and are not read again",
    ],
    role: |head| {
        if head.has_columns(",", &["LineId", "Content", "EventId", "EventTemplate"]) {
            Some("lines")
        } else if head.line(0).starts_with("EventId,EventTemplate") {
            Some("templates")
        } else {
            None
        }
    },
    read,
    ..SourceFormat::PLAIN
};

fn read(role: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let file = load.file().to_owned();
    let system = file.rsplit('/').next().unwrap_or("");
    let system = system.split("_2k").next().unwrap_or("").to_owned();
    let Some(mut csv) = DelimitedFile::new(input, ",", load) else {
        return;
    };
    while csv.next(load) {
        if role == "templates" {
            continue;
        }
        let (when, no_year) = moment(&csv);
        if no_year {
            load.report_kept_row("no-year", "time", || "the line names no year; time is null".to_owned());
        } else if when.is_none() {
            load.report_kept_row("bad-value", "time", || "no time that can be read; null".to_owned());
        }
        let node = ["Node", "User", "Location"]
            .into_iter()
            .map(|name| csv.get(name))
            .find(|text| !text.is_empty());
        load.row(TableKind::Events)
            .num("time", when)
            .text("node", node.unwrap_or(""))
            .text("label", csv.get("Label"))
            .text("severity", csv.get("Level"))
            .text("message", csv.get("Content"))
            .text("x_template", csv.get("EventId"))
            .text("x_component", csv.get("Component"))
            .text("x_system", &system);
    }
}

/// Returns the time of a line, and true if its format lacks the year.
fn moment(csv: &DelimitedFile<'_>) -> (Option<f64>, bool) {
    if let Ok(seconds) = csv.get("Timestamp").parse::<u32>() {
        return (Some(f64::from(seconds)), false);
    }
    let date = csv.get("Date");
    let clock = csv.get("Time");
    if date.is_empty() {
        return (time::words(clock), false);
    }
    if !csv.get("Month").is_empty() || date.len() == 3 {
        return (None, true);
    }
    let day = match date.as_bytes() {
        // 17/06/09
        [_, _, b'/', ..] => format!("20{}", date.replace('/', "-")),
        // 081109
        [_, _, _, _, _, _] if date.is_ascii() => format!("20{}-{}-{}", &date[..2], &date[2..4], &date[4..]),
        _ => date.to_owned(),
    };
    let hour = match clock.as_bytes() {
        [_, _, _, _, _, _] if clock.is_ascii() => format!("{}:{}:{}", &clock[..2], &clock[2..4], &clock[4..]),
        _ => clock.to_owned(),
    };
    (time::wall(&format!("{day} {hour}")), false)
}
