//! Blue Gene/L's failure events, and the label-first logs of the Computer Failure Data Repository (BGL, Thunderbird,
//! Spirit, Liberty).

use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::time;

const CITATION: &str = "A. Oliner, J. Stearley, What Supercomputers Say: A Study of Five System Logs, DSN 2007";

pub(super) const FAILURES: SourceFormat = SourceFormat {
    name: "bgl",
    title: "Blue Gene/L (LLNL) FATAL and FAILURE events, June 2005 to January 2006, and three views with repeats removed",
    licence: "public CFDR/LLNL release; none stated in the repository: use and cite, do not pass on",
    citation: CITATION,
    home: "USENIX CFDR; Derek-Jones/ESEUR-code-data, data-check/Blue-Gene.log",
    clock: "US Pacific wall clock without offset, counted as UTC; the hour of 2005-10-30 that comes twice is ambiguous",
    traps: &[
        "the files are views of one log: take one of them, by x_file",
        "symptoms, not incidents: one root cause gives thousands of lines",
        "message is the pattern itself: the text is cut behind it",
        "a window of repeats is counted in whole seconds from the event seen last, not from the event kept last",
    ],
    role: |head| {
        let is = |line: &str| {
            let mut words = line.split(' ');
            words.next().and_then(time::blue_gene).is_some() && words.nth(1) == Some("RAS")
        };
        is(head.line(0)).then_some("events")
    },
    read: read_failures,
    ..SourceFormat::PLAIN
};

pub(super) const LABELLED: SourceFormat = SourceFormat {
    name: "cfdr-logs",
    title: "Label-first system logs (BGL, Thunderbird, Spirit, Liberty) of the Computer Failure Data Repository",
    licence: "public CFDR releases: use and cite, do not pass on",
    citation: CITATION,
    home: "USENIX CFDR; Zenodo 8196385 (loghub)",
    clock: "Unix seconds of each line's second field; the wall clock beside it has another zone",
    traps: &[
        "a label is not a severity: `-` is no alert, whatever the severity says",
        "the Thunderbird sample of 2,000 lines has no alert at all",
    ],
    role: |head| labelled(head.line(0)).map(|_| "labelled lines"),
    read: read_labelled,
    ..SourceFormat::PLAIN
};

fn read_failures(_: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let file = load.file().to_owned();
    while let Some(line) = input.line(load) {
        if line.is_empty() {
            continue;
        }
        load.read_row();
        let mut words = line.splitn(6, ' ');
        let mut word = || words.next().unwrap_or("");
        let stamp = word();
        let place = word();
        let facility = word();
        let component = word();
        let severity = word();
        let text = word();
        let Some(when) = time::blue_gene(stamp) else {
            load.lose("bad-row", "time", || {
                "does not begin with a time; passed over".to_owned()
            });
            continue;
        };
        load.in_order(TableKind::Events, Some(when));
        let known = !matches!(place, "NULL" | "UNKNOWN_LOCATION");
        load.row(TableKind::Events)
            .num("time", when)
            .text("node", if known { place } else { "" })
            .text("severity", severity)
            .text("message", text)
            .text("x_location", place)
            .text("x_facility", facility)
            .text("x_component", component)
            .text("x_file", &file);
    }
}

/// Splits a line into label, Unix seconds, node and rest.
fn labelled(line: &str) -> Option<(&str, f64, &str, &str)> {
    let mut words = line.splitn(5, ' ');
    let label = words.next()?;
    let seconds = words.next()?.parse::<u64>().ok()?;
    let date = words.next()?;
    let dated = date.len() == 10 && date.bytes().filter(|byte| *byte == b'.').count() == 2;
    dated.then_some((label, seconds as f64, words.next()?, words.next().unwrap_or("")))
}

fn read_labelled(_: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let file = load.file().to_owned();
    while let Some(line) = input.line(load) {
        if line.is_empty() {
            continue;
        }
        load.read_row();
        let Some((label, when, node, rest)) = labelled(line) else {
            load.lose("bad-row", "", || {
                "not `label seconds date node ...`; passed over".to_owned()
            });
            continue;
        };
        load.in_order(TableKind::Events, Some(when));
        // Blue Gene's lines continue with time, node, facility, component and severity; the others are syslog.
        let words: Vec<&str> = rest.splitn(6, ' ').collect();
        let blue = words.len() == 6 && time::blue_gene(words[0]).is_some();
        let (severity, message) = if blue { (words[4], words[5]) } else { ("", rest) };
        load.row(TableKind::Events)
            .num("time", when)
            .text("node", node)
            .text("label", label)
            .text("severity", severity)
            .text("message", message)
            .text("x_file", &file);
    }
}
