//! Lease by which one of several programs acts.
//!
//! A lease counts as held until this program has seen no renewal for its duration, by the clock of this machine: clocks of
//! different machines are never compared. Two holders at a time do no harm, because all changes are conditional; the lease
//! only keeps them from doing the work twice.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::api_client::ApiClient;
use crate::api_error::ApiError;
use crate::objects::{LeaseObject, LeaseSpec};

/// Time without a renewal after which another program takes the lease.
pub const LEASE_DURATION: Duration = Duration::from_secs(30);
/// Time after which the holder renews it.
const RENEW_AFTER: Duration = Duration::from_secs(10);
/// Time since the newest renewal after which the holder no longer acts: another may take the lease soon.
const ACT_WITHIN: Duration = Duration::from_secs(20);
/// Time between two looks at the lease of another program.
const LOOK_AFTER: Duration = Duration::from_secs(2);

/// Claim of this program on a lease.
#[derive(Debug)]
pub struct LeaseClaim {
    client: ApiClient,
    namespace: String,
    name: String,
    /// Identity of this program.
    identity: String,
    /// Newest request, and when it was made.
    asked_at: Option<Instant>,
    /// Time of the newest acquisition or renewal by this program.
    renewed_at: Option<Instant>,
    /// Version of the lease of another holder, and when it was first seen.
    seen: Option<(String, Instant)>,
    /// Holder as of the newest answer.
    holder: String,
}

impl LeaseClaim {
    /// Makes a claim without a request.
    pub fn new(client: ApiClient, namespace: &str, name: &str, identity: String) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity,
            asked_at: None,
            renewed_at: None,
            seen: None,
            holder: String::new(),
        }
    }

    /// Holder as of the newest answer; empty if there is none.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Acquires or renews the lease if it is time to. Returns true if this program holds it.
    ///
    /// # Errors
    /// A request fails; the lease may have to be given up.
    pub async fn refresh(&mut self) -> Result<bool, ApiError> {
        let now = Instant::now();
        let is_holder = self.renewed_at.is_some();
        let pause = if is_holder { RENEW_AFTER } else { LOOK_AFTER };
        if self.asked_at.is_some_and(|asked| now.duration_since(asked) < pause) {
            return Ok(self.may_act(now));
        }
        self.asked_at = Some(now);
        let found = self.client.lease(&self.namespace, &self.name).await?;
        let Some(lease) = found else {
            return self.write(None, &LeaseSpec::default(), now).await;
        };
        self.holder.clone_from(&lease.spec.holder_identity);
        let is_free = self.holder.is_empty() || self.holder == self.identity || self.has_ended(&lease, now);
        if is_free {
            let version = lease.metadata.resource_version.clone();
            return self.write(Some(&version), &lease.spec, now).await;
        }
        self.renewed_at = None;
        Ok(false)
    }

    /// Gives the lease up, so that another program can take it at once.
    ///
    /// # Errors
    /// A request fails; the lease ends by itself.
    pub async fn release(&mut self) -> Result<(), ApiError> {
        if self.renewed_at.take().is_none() {
            return Ok(());
        }
        let found = self.client.lease(&self.namespace, &self.name).await?;
        let Some(lease) = found.filter(|lease| lease.spec.holder_identity == self.identity) else {
            return Ok(());
        };
        let spec = LeaseSpec {
            holder_identity: String::new(),
            ..lease.spec
        };
        let version = Some(lease.metadata.resource_version.as_str());
        let written = self.client.write_lease(&self.namespace, &self.name, version, &spec);
        written.await.map(drop)
    }

    fn may_act(&self, now: Instant) -> bool {
        self.renewed_at
            .is_some_and(|renewed| now.duration_since(renewed) < ACT_WITHIN)
    }

    /// Returns true if the lease of another program was not renewed for its duration while this program looked.
    fn has_ended(&mut self, lease: &LeaseObject, now: Instant) -> bool {
        let version = &lease.metadata.resource_version;
        match &self.seen {
            Some((seen, since)) if seen == version => {
                let duration = Duration::from_secs(lease.spec.lease_duration_seconds.into());
                now.duration_since(*since) >= duration
            }
            _ => {
                self.seen = Some((version.clone(), now));
                false
            }
        }
    }

    async fn write(&mut self, version: Option<&str>, before: &LeaseSpec, now: Instant) -> Result<bool, ApiError> {
        let is_renewal = before.holder_identity == self.identity;
        let time = Timestamp::now();
        let time = format!("{time:.6}");
        let spec = LeaseSpec {
            holder_identity: self.identity.clone(),
            lease_duration_seconds: u32::try_from(LEASE_DURATION.as_secs()).unwrap_or(u32::MAX),
            acquire_time: before
                .acquire_time
                .clone()
                .filter(|_| is_renewal)
                .or(Some(time.clone())),
            renew_time: Some(time),
            lease_transitions: before.lease_transitions + u32::from(version.is_some() && !is_renewal),
        };
        let written = self.client.write_lease(&self.namespace, &self.name, version, &spec);
        match written.await {
            Ok(_) => {
                self.holder.clone_from(&self.identity);
                self.renewed_at = Some(now);
                self.seen = None;
                Ok(true)
            }
            // Another program was faster.
            Err(problem) if problem.is_conflict() => {
                self.renewed_at = None;
                Ok(false)
            }
            Err(problem) => Err(problem),
        }
    }
}
