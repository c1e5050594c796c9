//! SXid: severity, port and wording of an NVSwitch event.

use rankguard_model::Role;

use super::DecodedMessage;
use super::text::{after, number};
use crate::code::{DriverCode, FatalityScope};

/// Decodes `12028, Non-fatal, Link 32 egress non-posted PRIV error (First)`
pub(super) fn refine(text: &str, code: Option<&DriverCode>, decoded: &mut DecodedMessage) {
    let continued = after(text, "Severity ").is_some() || after(text, "Data {").is_some();
    if continued {
        // The lines below an event repeat its number; they are not a second event.
        decoded.set("continuation", "yes");
        decoded.role = Role::Noise;
    }
    let fatal = if after(text, "Non-fatal").is_some() {
        Some(false)
    } else {
        after(text, "Fatal").map(|_| true)
    };
    if let Some(fatal) = fatal {
        decoded.set("severity", if fatal { "fatal" } else { "non-fatal" });
    }
    let said = after(text, "Link ");
    let port = said.and_then(number);
    if let Some(port) = port {
        decoded.set("port", port);
    }
    if after(text, "(First)").is_some() {
        decoded.set("first", "yes");
    }
    let reach = code.and_then(|code| code.fatal);
    let stops = match (fatal, reach) {
        (Some(true), Some(FatalityScope::Fabric)) => "; fatal to the whole fabric",
        (Some(true), _) => "; fatal to the partition of the port",
        (Some(false), _) => "; not fatal",
        (None, _) => "",
    };
    if code.is_none() && fatal == Some(false) && !continued {
        // Only the driver's own severity is known for an unknown event.
        decoded.role = Role::Confirmation;
    }
    let at = port.map_or_else(String::new, |port| format!("port {port}: "));
    decoded.sentence = format!("{at}{}{stops}", decoded.sentence).into();
}
