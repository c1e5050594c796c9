//! Removal notices of three clouds, as their metadata services give them.
//!
//! | cloud | source | documentation |
//! |---|---|---|
//! | AWS | `spot/instance-action`, `events/maintenance/scheduled`, with a session token (IMDSv2) | EC2 User Guide, "Spot Instance interruption notices", "Scheduled events for your instances" |
//! | Azure | Scheduled Events, version 2020-07-01 | "Azure Metadata Service: Scheduled Events for Linux VMs" |
//! | Google Cloud | `instance/preempted`, `instance/maintenance-event` | Compute Engine, "Preemptible VM instances", "Query metadata server for maintenance event notices" |
//!
//! Events during which the machine stays, such as a live migration or a pause of seconds, are no removal.

use hyper::{Method, StatusCode};
use rankguard_faults::classes;
use rankguard_model::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::SourceResult;
use super::metadata::{MetadataClient, RequestFailure};
use super::notice::{RemovalNotice, one_line};
use crate::settings::{CloudKind, RemovalSettings};

/// Lifetime of a session token of AWS, seconds; the longest that the service grants.
const TOKEN_TTL: &str = "21600";

/// Removal notices of the cloud of this machine.
#[derive(Debug)]
pub(super) struct CloudNotices {
    kind: CloudKind,
    client: MetadataClient,
    /// Session token (AWS), or name of this machine (Azure), once known.
    known: Option<String>,
}

/// Answer of `spot/instance-action`.
#[derive(Debug, Deserialize)]
struct SpotAction {
    /// `terminate`, `stop` or `hibernate`.
    action: String,
    /// Time of the action in RFC 3339.
    time: String,
}

/// Entry of `events/maintenance/scheduled`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MaintenanceEvent {
    /// `instance-stop`, `instance-retirement`, `instance-reboot`, `system-reboot` or `system-maintenance`.
    code: String,
    /// Earliest time, as `21 Jan 2019 09:00:43 GMT`.
    not_before: String,
    /// `active`, `completed` or `canceled`.
    #[serde(default)]
    state: String,
}

/// Answer of Scheduled Events.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScheduledEvents {
    #[serde(default)]
    events: Vec<ScheduledEvent>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScheduledEvent {
    /// `Preempt`, `Terminate`, `Reboot`, `Redeploy` or `Freeze`.
    event_type: String,
    /// Names of the machines concerned.
    #[serde(default)]
    resources: Vec<String>,
    /// `Scheduled` or `Started`.
    #[serde(default)]
    event_status: String,
    /// `Mon, 19 Sep 2016 18:29:47 GMT`; empty once the event has started.
    #[serde(default)]
    not_before: String,
}

impl CloudNotices {
    pub(super) fn new(kind: CloudKind, settings: &RemovalSettings) -> Result<Self, String> {
        let default = match kind {
            CloudKind::Aws | CloudKind::Azure => "169.254.169.254:80",
            CloudKind::Gcp => "metadata.google.internal:80",
        };
        Ok(Self {
            kind,
            client: MetadataClient::new(settings.metadata.as_deref().unwrap_or(default))?,
            known: None,
        })
    }

    /// Returns the earliest notice of this machine.
    pub(super) fn read(&mut self) -> SourceResult {
        match self.kind {
            CloudKind::Aws => self.read_aws(),
            CloudKind::Azure => self.read_azure(),
            CloudKind::Gcp => self.read_gcp(),
        }
    }

    fn read_aws(&mut self) -> SourceResult {
        let mut notices = Vec::new();
        if let Some(action) = self.get_aws("/latest/meta-data/spot/instance-action")? {
            notices.push(spot_notice(&action)?);
        }
        if let Some(events) = self.get_aws("/latest/meta-data/events/maintenance/scheduled")? {
            notices.extend(maintenance_notices(&events)?);
        }
        Ok(notices.into_iter().min_by_key(|notice| notice.at))
    }

    /// Reads a path with the session token; a token that is no longer accepted is replaced once.
    fn get_aws(&mut self, path: &str) -> Result<Option<String>, String> {
        let had_token = self.known.is_some();
        match self.get_with_token(path) {
            Err(failure) if had_token && failure.status == Some(StatusCode::UNAUTHORIZED) => {
                self.known = None;
                Ok(self.get_with_token(path)?)
            }
            answer => Ok(answer?),
        }
    }

    fn get_with_token(&mut self, path: &str) -> Result<Option<String>, RequestFailure> {
        let token = match &self.known {
            Some(token) => token.clone(),
            None => {
                let ttl = [("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_TTL)];
                let token = self.client.request(Method::PUT, "/latest/api/token", &ttl)?;
                // A service without tokens (version 1 only) ignores the header.
                let token = one_line(&token.unwrap_or_default());
                self.known.insert(token).clone()
            }
        };
        self.client
            .request(Method::GET, path, &[("x-aws-ec2-metadata-token", &token)])
    }

    fn read_azure(&mut self) -> SourceResult {
        let headers = [("metadata", "true")];
        let get = |path| self.client.request(Method::GET, path, &headers);
        if self.known.is_none() {
            let name = get("/metadata/instance/compute/name?api-version=2021-02-01&format=text")?;
            let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
            self.known = Some(name.ok_or("the metadata service does not state the name of this machine")?);
        }
        let events = get("/metadata/scheduledevents?api-version=2020-07-01")?;
        let name = self.known.as_deref().unwrap_or_default();
        let notices = scheduled_notices(events.as_deref().unwrap_or("{}"), name)?;
        Ok(notices.into_iter().min_by_key(|notice| notice.at))
    }

    fn read_gcp(&mut self) -> SourceResult {
        let headers = [("metadata-flavor", "Google")];
        let get = |path| self.client.request(Method::GET, path, &headers);
        let preempted = get("/computeMetadata/v1/instance/preempted")?;
        let maintenance = get("/computeMetadata/v1/instance/maintenance-event")?;
        let is_true = |value: &String| value.trim().eq_ignore_ascii_case("true");
        if preempted.as_ref().is_some_and(is_true) {
            return Ok(Some(notice(
                "Google Cloud preempts this instance",
                None,
                classes::PREEMPTED,
            )));
        }
        let ends = maintenance.is_some_and(|event| event.trim() == "TERMINATE_ON_HOST_MAINTENANCE");
        let reason = "Google Cloud stops this instance for maintenance of its host";
        Ok(ends.then(|| notice(reason, None, classes::MAINTENANCE)))
    }
}

fn notice(reason: &str, at: Option<Timestamp>, class: &'static str) -> RemovalNotice {
    RemovalNotice {
        reason: reason.to_owned(),
        at,
        class,
    }
}

fn parse<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|problem| format!("{what}: {problem}"))
}

fn spot_notice(text: &str) -> Result<RemovalNotice, String> {
    let action: SpotAction = parse("spot/instance-action", text)?;
    let verb = match action.action.as_str() {
        "terminate" => "terminates",
        "stop" => "stops",
        "hibernate" => "hibernates",
        other => return Err(format!("spot/instance-action: the action {other:?} is unknown")),
    };
    let at = action.time.parse::<jiff::Timestamp>();
    let at = at.map_err(|problem| format!("spot/instance-action: time: {problem}"))?;
    let reason = format!("AWS {verb} this spot instance");
    Ok(notice(&reason, Some(wall_time(at)), classes::PREEMPTED))
}

fn maintenance_notices(text: &str) -> Result<Vec<RemovalNotice>, String> {
    let events: Vec<MaintenanceEvent> = parse("events/maintenance/scheduled", text)?;
    let open = events
        .into_iter()
        .filter(|event| event.state.is_empty() || event.state == "active");
    open.map(|event| {
        let at = http_time(&event.not_before);
        let at = at.map_err(|problem| format!("events/maintenance/scheduled: NotBefore: {problem}"))?;
        let reason = format!("AWS maintenance {}", one_line(&event.code));
        Ok(notice(&reason, Some(at), classes::MAINTENANCE))
    })
    .collect()
}

fn scheduled_notices(text: &str, machine: &str) -> Result<Vec<RemovalNotice>, String> {
    let events: ScheduledEvents = parse("scheduledevents", text)?;
    let of_machine = |event: &ScheduledEvent| event.resources.iter().any(|name| name == machine);
    let mut notices = Vec::new();
    for event in events.events.into_iter().filter(of_machine) {
        let (verb, class) = match event.event_type.as_str() {
            "Preempt" => ("evicts this spot machine", classes::PREEMPTED),
            "Terminate" => ("deletes this machine", classes::PREEMPTED),
            "Reboot" => ("reboots this machine", classes::MAINTENANCE),
            "Redeploy" => ("moves this machine to another host", classes::MAINTENANCE),
            // The machine pauses for seconds.
            _ => continue,
        };
        let has_time = event.event_status != "Started" && !event.not_before.is_empty();
        let at = has_time.then(|| http_time(&event.not_before)).transpose();
        let at = at.map_err(|problem| format!("scheduledevents: NotBefore: {problem}"))?;
        notices.push(notice(&format!("Azure {verb}"), at, class));
    }
    Ok(notices)
}

/// Parses a date of RFC 2822, with or without the day of the week.
fn http_time(text: &str) -> Result<Timestamp, String> {
    let time = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text.trim());
    time.map(wall_time).map_err(|problem| problem.to_string())
}

fn wall_time(time: jiff::Timestamp) -> Timestamp {
    Timestamp::from_millis(time.as_millisecond())
}

#[cfg(test)]
mod tests;
