//! Answers in the forms that the documentation of the clouds gives, and a service that answers over TCP.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::*;

/// Metadata service of a test: answers one request a connection.
struct FakeService {
    address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

/// Answer of a test service to a request line and its headers: status and body.
type AnswerFn = fn(&str, &[String]) -> (u16, &'static str);

impl FakeService {
    /// Starts a service that answers `requests` requests.
    fn start(requests: usize, answer: AnswerFn) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().take(requests) {
                let line = serve(stream.expect("a connection"), answer);
                log.lock().expect("no panic").push(line);
            }
        });
        Self { address, seen }
    }

    fn notices(&self, kind: CloudKind) -> CloudNotices {
        let settings = RemovalSettings {
            cloud: Some(kind),
            metadata: Some(self.address.clone()),
            ..RemovalSettings::default()
        };
        CloudNotices::new(kind, &settings).expect("a client")
    }
}

fn serve(mut stream: TcpStream, answer: AnswerFn) -> String {
    let lines = BufReader::new(stream.try_clone().expect("a handle")).lines();
    let lines = lines
        .map(|line| line.expect("a line"))
        .take_while(|line| !line.is_empty());
    let mut lines = lines.collect::<Vec<String>>();
    let line = lines.remove(0);
    let (status, body) = answer(&line, &lines);
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).expect("it reads");
    line
}

fn millis(text: &str) -> Option<Timestamp> {
    Some(wall_time(text.parse().expect("a time")))
}

#[test]
fn aws_gives_the_earliest_of_spot_and_maintenance() {
    let service = FakeService::start(3, |line, headers| {
        let has_token = headers.iter().any(|header| header == "x-aws-ec2-metadata-token: t0");
        match line.split(' ').nth(1) {
            Some("/latest/api/token") if line.starts_with("PUT") => (200, "t0"),
            _ if !has_token => (401, ""),
            Some("/latest/meta-data/spot/instance-action") => {
                (200, r#"{"action": "terminate", "time": "2017-09-18T08:22:00Z"}"#)
            }
            Some("/latest/meta-data/events/maintenance/scheduled") => (
                200,
                r#"[{"NotBefore": "21 Jan 2019 09:00:43 GMT", "Code": "system-reboot", "Description": "scheduled reboot",
                     "EventId": "instance-event-0d59937288b749b32", "NotAfter": "21 Jan 2019 09:17:23 GMT", "State": "active"}]"#,
            ),
            _ => (404, ""),
        }
    });
    let found = service
        .notices(CloudKind::Aws)
        .read()
        .expect("readable")
        .expect("a notice");
    assert_eq!(found.at, millis("2017-09-18T08:22:00Z"));
    assert_eq!(found.reason, "AWS terminates this spot instance");
    assert_eq!(found.class, classes::PREEMPTED);
}

#[test]
fn aws_replaces_an_expired_token_and_reads_not_found_as_no_notice() {
    let service = FakeService::start(4, |line, headers| match line.split(' ').nth(1) {
        Some("/latest/api/token") => (200, "new"),
        _ if headers.iter().any(|header| header == "x-aws-ec2-metadata-token: old") => (401, ""),
        _ => (404, ""),
    });
    let mut notices = service.notices(CloudKind::Aws);
    notices.known = Some("old".to_owned());
    assert_eq!(notices.read(), Ok(None));
    assert_eq!(service.seen.lock().expect("no panic").len(), 4);
}

#[test]
fn azure_gives_events_of_this_machine_only() {
    let events = |machine: &str, kind: &str| {
        format!(
            r#"{{"DocumentIncarnation": 1, "Events": [{{"EventId": "A", "EventType": "{kind}", "ResourceType": "VirtualMachine",
               "Resources": ["{machine}"], "EventStatus": "Scheduled", "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
               "Description": "", "EventSource": "Platform", "DurationInSeconds": -1}}]}}"#
        )
    };
    let of = |machine: &str, kind: &str| scheduled_notices(&events(machine, kind), "gpu-7").expect("readable");
    let preempted = of("gpu-7", "Preempt");
    assert_eq!(preempted[0].at, millis("2016-09-19T18:29:47Z"));
    assert_eq!(preempted[0].class, classes::PREEMPTED);
    assert_eq!(of("gpu-7", "Redeploy")[0].class, classes::MAINTENANCE);
    assert_eq!(of("gpu-8", "Preempt"), []);
    // The machine pauses for seconds.
    assert_eq!(of("gpu-7", "Freeze"), []);
    let started = events("gpu-7", "Reboot").replace("Scheduled", "Started");
    assert_eq!(scheduled_notices(&started, "gpu-7").expect("readable")[0].at, None);
}

#[test]
fn google_cloud_gives_preemption_and_stops_for_maintenance() {
    let service = FakeService::start(2, |line, headers| {
        let asks = headers.iter().any(|header| header == "metadata-flavor: Google");
        match line.split(' ').nth(1) {
            Some("/computeMetadata/v1/instance/preempted") if asks => (200, "TRUE"),
            Some("/computeMetadata/v1/instance/maintenance-event") if asks => (200, "NONE"),
            _ => (403, ""),
        }
    });
    let found = service
        .notices(CloudKind::Gcp)
        .read()
        .expect("readable")
        .expect("a notice");
    assert_eq!((found.class, found.at), (classes::PREEMPTED, None));
    let service = FakeService::start(2, |line, _| match line.split(' ').nth(1) {
        Some("/computeMetadata/v1/instance/preempted") => (200, "FALSE"),
        _ => (200, "MIGRATE_ON_HOST_MAINTENANCE"),
    });
    assert_eq!(service.notices(CloudKind::Gcp).read(), Ok(None));
}

#[test]
fn a_problem_names_address_and_cause() {
    let service = FakeService::start(1, |_, _| (503, "busy"));
    let problem = service.notices(CloudKind::Gcp).read().expect_err("no answer");
    assert!(problem.contains("/instance/preempted: 503"), "{problem}");
    for text in ["{}", "[", r#"{"action": "explode", "time": "2017-09-18T08:22:00Z"}"#] {
        assert!(
            spot_notice(text)
                .expect_err("no notice")
                .starts_with("spot/instance-action")
        );
    }
    assert!(maintenance_notices(r#"[{"Code": "x", "NotBefore": "soon"}]"#).is_err());
}
