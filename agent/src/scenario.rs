//! Scenario language of the stub for the GPU management library. Uses only the standard library.
//!
//! One fact a line, a later line overrides an earlier one, `#` begins a comment:
//!
//! ```text
//! count 8               devices that are listed
//! address 0 9B          PCI bus of a device (hexadecimal); without it, its index
//! temperature 0 95      a value of a device, * is every device; [`VALUES`] lists the names
//! processes 0/2 1       the same of the third MIG device of a device, counted from 0
//! ecc 0 4 +2/s          a value that grows from the moment of the line
//! nvlink-down 0 3       a link of a device that is not active
//! xid 0 79              an event, delivered once to each set of events that was there before it
//! error 1 15            every call about this device gives this code (15: lost, 4: not permitted), 0 ends it
//! fail 9                every call but starting and ending the library gives this code, 0 ends it
//! init 9                the library does not start, with this code, 0 ends it
//! hang temperature      this call does not return while the line stands; `hang temperature off` ends it
//! at 5s error 1 15      the same, from 5 seconds (or milliseconds: 500ms) after the start
//! ```
//!
//! The agent parses a scenario to report its mistakes; the stub, which is built without any other crate, parses it to
//! play it: both use this file.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

/// Names of a device's values. Units are those of the library: degrees Celsius, milliwatts, megahertz, percent,
/// nanoseconds, bytes; bit error rates, states and masks are the library's own numbers. Per-link counters belong to the
/// link that `nvlink-worst` names, else to the first.
pub const VALUES: [&str; 68] = [
    "c2c-active",
    "c2c-errors",
    "c2c-links",
    "c2c-replays",
    "clock",
    "clock-max",
    "compute-instance",
    "ecc",
    "ecc-aggregate",
    "ecc-corrected",
    "ecc-corrected-aggregate",
    "fabric",
    "fabric-health",
    "fabric-status",
    "fabric-summary",
    "gpu-instance",
    "memory",
    "memory-limit",
    "memory-temperature",
    "memory-used",
    "mig",
    "mig-devices",
    "mig-pending",
    "nvlink-crc",
    "nvlink-discards",
    "nvlink-effective-ber",
    "nvlink-effective-errors",
    "nvlink-integrity-errors",
    "nvlink-malformed",
    "nvlink-overruns",
    "nvlink-receive-errors",
    "nvlink-recoveries",
    "nvlink-recoveries-failed",
    "nvlink-recovery-events",
    "nvlink-remote-errors",
    "nvlink-replays",
    "nvlink-strained",
    "nvlink-symbol-ber",
    "nvlink-symbol-errors",
    "nvlink-worst",
    "nvlinks",
    "pcie-corrected",
    "pcie-fatal",
    "pcie-gen",
    "pcie-gen-max",
    "pcie-nonfatal",
    "pcie-recoveries",
    "pcie-width",
    "pcie-width-max",
    "pending",
    "power",
    "power-limit",
    "processes",
    "reasons",
    "recovery",
    "remapped",
    "remapped-corrected",
    "remapped-uncorrected",
    "replays",
    "retired-corrected",
    "retired-uncorrected",
    "slowdown",
    "temperature",
    "throttled-board",
    "throttled-power",
    "throttled-thermal",
    "unrepaired",
    "utilization",
];

/// Calls that are not values and can hang too.
pub const CALLS: [&str; 6] = ["address", "count", "events", "fields", "handle", "nvlink"];

/// First words of a fact besides the values.
pub const WORDS: [&str; 9] = [
    "address",
    "at",
    "count",
    "error",
    "fail",
    "hang",
    "init",
    "nvlink-down",
    "xid",
];

/// Most devices, because listed ones are read one by one.
const DEVICES: u64 = 64;

/// Most MIG devices of one device.
const PARTS: u64 = 7;

/// Line with a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioFact {
    /// Time after the start from which it holds.
    pub from: Duration,
    /// Words of the fact, without the time.
    pub words: Vec<String>,
}

/// First invalid line of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// Line number, from 1.
    pub line: usize,
    /// Description of the problem, with the valid words.
    pub problem: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

/// Parses all facts in the order of the text. Fails at the first mistake.
pub fn parse(text: &str) -> Result<Vec<ScenarioFact>, ScenarioError> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let stated = line.split('#').next().unwrap_or_default();
        let mut words: Vec<String> = stated.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            continue;
        }
        let mistake = |problem| ScenarioError { line: number, problem };
        let mut from = Duration::ZERO;
        if words.first().is_some_and(|word| word == "at") {
            let told = words.get(1).map_or("", String::as_str);
            from = moment(told).ok_or_else(|| mistake(format!("`{told}` is no moment; want 5s or 500ms")))?;
            words.drain(..2);
        }
        known(&words).map_err(mistake)?;
        lines.push(ScenarioFact { from, words });
    }
    Ok(lines)
}

/// Checks that a file is a scenario. Fails with a message that names the line and the mistake.
pub fn check(path: &Path) -> Result<(), String> {
    let at = path.display();
    let text = std::fs::read_to_string(path).map_err(|problem| format!("cannot read the scenario {at}: {problem}"))?;
    parse(&text)
        .map(drop)
        .map_err(|mistake| format!("the scenario {at} means nothing at {mistake}"))
}

fn known(words: &[String]) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str, range: RangeInclusive<u64>| match word.parse::<u64>() {
        Ok(number) if range.contains(&number) => Ok(()),
        _ => Err(format!("`{word}` is no number of {} to {}", range.start(), range.end())),
    };
    let device = |word: &str| match word {
        "*" => Ok(()),
        word => number(word, 0..=DEVICES - 1).map_err(|problem| format!("{problem}, and not * for every device")),
    };
    let whose = |word: &str| match word.split_once('/') {
        Some((which, part)) => device(which).and_then(|()| number(part, 0..=PARTS - 1)),
        None => device(word),
    };
    let code = 0..=u64::from(u32::MAX);
    match words[..] {
        ["count", count] => number(count, 0..=DEVICES),
        ["fail" | "init", given] => number(given, code),
        ["error", which, given] => device(which).and_then(|()| number(given, code)),
        ["address", which, bus] => {
            device(which)?;
            let fits = !bus.is_empty() && bus.len() <= 2 && bus.bytes().all(|byte| byte.is_ascii_hexdigit());
            fits.then_some(())
                .ok_or_else(|| format!("`{bus}` is no PCI bus; want two hexadecimal digits such as 9B"))
        }
        ["xid", which, xid] => number(which, 0..=DEVICES - 1).and_then(|()| number(xid, code)),
        ["nvlink-down", which, link] => number(which, 0..=DEVICES - 1).and_then(|()| number(link, 0..=63)),
        ["hang", call] | ["hang", call, "off"] => {
            let is_call = VALUES.contains(&call) || CALLS.contains(&call);
            is_call
                .then_some(())
                .ok_or_else(|| unknown("a call", call, CALLS.iter().chain(&VALUES)))
        }
        [name, which, value] if VALUES.contains(&name) => whose(which).and_then(|()| number(value, 0..=u64::MAX)),
        [name, which, value, growth] if VALUES.contains(&name) => {
            whose(which)?;
            number(value, 0..=u64::MAX)?;
            growth_of(growth)
                .map(|_| ())
                .ok_or_else(|| format!("`{growth}` is no growth; want +2/s"))
        }
        [name, ..] if VALUES.contains(&name) => {
            Err(format!("want {name} DEVICE VALUE, or {name} DEVICE VALUE +GROWTH/s"))
        }
        ["", ..] | [] | ["at", ..] => Err("a moment without a fact".to_owned()),
        [name, ..] if WORDS.contains(&name) => Err(format!("`{name}` does not take these words; want {}", form(name))),
        [name, ..] => Err(unknown("a fact", name, WORDS.iter().chain(&VALUES))),
    }
}

fn form(name: &str) -> &'static str {
    match name {
        "address" => "address DEVICE BUS",
        "count" => "count NUMBER",
        "error" => "error DEVICE CODE",
        "fail" => "fail CODE",
        "hang" => "hang CALL, or hang CALL off",
        "init" => "init CODE",
        "nvlink-down" => "nvlink-down DEVICE LINK",
        _ => "xid DEVICE NUMBER",
    }
}

fn unknown<'a>(what: &str, word: &str, known: impl Iterator<Item = &'a &'a str>) -> String {
    let known: Vec<&str> = known.copied().collect();
    format!("`{word}` is not known as {what}; known are {}", known.join(", "))
}

/// Parses `+2/s` as two each second.
pub fn growth_of(text: &str) -> Option<f64> {
    let rate = text.strip_prefix('+')?.strip_suffix("/s")?.parse::<f64>().ok()?;
    rate.is_finite().then_some(rate)
}

/// Parses `5s`, `0.5s` or `500ms`.
fn moment(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s')?, 1.0),
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_comments_and_moments_are_read() {
        let text = "# a node\ncount 8\n\naddress 0 9B # the first\nat 0.5s ecc * 4 +2/s\nhang ecc off\n";
        let lines = parse(text).expect("it is well formed");
        let told: Vec<_> = lines.iter().map(|line| (line.from, line.words.join(" "))).collect();
        let half = Duration::from_millis(500);
        let wanted = [
            (Duration::ZERO, "count 8"),
            (Duration::ZERO, "address 0 9B"),
            (half, "ecc * 4 +2/s"),
            (Duration::ZERO, "hang ecc off"),
        ];
        assert_eq!(told, wanted.map(|(from, words)| (from, words.to_owned())));
        assert_eq!(growth_of("+2/s"), Some(2.0));
    }

    #[test]
    fn every_mistake_is_told_with_its_line_and_what_is_known() {
        for (line, part) in [
            (
                "temprature 0 95",
                "`temprature` is not known as a fact; known are address, at, ",
            ),
            ("hang temprature", "`temprature` is not known as a call"),
            ("temperature 0", "want temperature DEVICE VALUE"),
            (
                "temperature x 95",
                "`x` is no number of 0 to 63, and not * for every device",
            ),
            ("temperature 0 -1", "`-1` is no number"),
            ("ecc 0/7 1", "`7` is no number of 0 to 6"),
            ("ecc 0/x 1", "`x` is no number of 0 to 6"),
            ("error 0/1 15", "`0/1` is no number of 0 to 63"),
            ("ecc 0 4 2/s", "`2/s` is no growth; want +2/s"),
            ("count", "want count NUMBER"),
            ("count 99999999", "is no number of 0 to 64"),
            ("address 0 PCI", "is no PCI bus"),
            ("xid * 79", "`*` is no number"),
            ("at soon count 8", "`soon` is no moment"),
            ("at 5s", "a moment without a fact"),
            ("at", "`` is no moment"),
            ("error 1", "want error DEVICE CODE"),
            ("\u{0}\u{fffd}", "is not known as a fact"),
        ] {
            let mistake = parse(&format!("count 8\n{line}\n")).expect_err(line);
            assert_eq!(mistake.line, 2, "{line}");
            assert!(mistake.to_string().contains(part), "{mistake}");
        }
    }
}
