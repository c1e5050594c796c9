//! Acceptance by a listener, and the errors on both sides when a peer is refused.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rankguard_identity::{
    AlpnProtocol, AuthorityFingerprint, CertificateAuthority, CertificateFields, CertificateIssuer, CertificateSerial,
    DialError, ExpectedPeer, IdentityFiles, IssueRequest, KeyRequest, PeerListener, PeerName, PeerRole, PeerStream,
    PeerTransport, RefusalReason, TlsIdentity, dial_enrolment,
};
use rankguard_model::NodeId;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const LIMIT: Duration = Duration::from_secs(60);

struct Site {
    dir: tempfile::TempDir,
    authority: CertificateAuthority,
}

impl Site {
    fn new(cluster: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        CertificateAuthority::create(&dir.path().join("ca"), cluster, 30).unwrap();
        let authority = CertificateAuthority::open(&dir.path().join("ca")).unwrap();
        Self { dir, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn files(&self, role: PeerRole, name: &str) -> IdentityFiles {
        let wanted = IssueRequest {
            role,
            name: name.to_owned(),
            hosts: vec!["127.0.0.1".to_owned()],
            days: 5,
        };
        self.authority
            .issue(&wanted, &self.path(&format!("{role}-{name}")))
            .unwrap()
            .1
    }

    fn network(&self, role: PeerRole, name: &str) -> PeerTransport {
        PeerTransport::with(TlsIdentity::new(self.files(role, name)))
    }
}

async fn listen(network: &PeerTransport, protocol: AlpnProtocol) -> (PeerListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (PeerListener::new(listener, network, protocol), address)
}

fn agent(node: &str) -> ExpectedPeer {
    ExpectedPeer::Agent(NodeId::from(node))
}

async fn dial(network: &PeerTransport, address: &str, expected: ExpectedPeer) -> Result<PeerStream, DialError> {
    network.dial(address, &expected, &AlpnProtocol::grpc(), LIMIT).await
}

/// Dials and returns the error's message.
async fn refused(network: &PeerTransport, address: &str, expected: ExpectedPeer) -> String {
    dial(network, address, expected).await.unwrap_err().words()
}

fn count(network: &PeerTransport, of: RefusalReason) -> u64 {
    let counts = network.refusals().counts();
    counts.iter().find(|(why, _)| *why == of).unwrap().1
}

#[tokio::test]
async fn both_sides_know_who_the_other_is_and_bytes_pass() {
    let site = Site::new("c");
    let n1 = site.network(PeerRole::Agent, "n1");
    let n2 = site.network(PeerRole::Agent, "n2");
    let (mut listener, address) = listen(&n2, AlpnProtocol::grpc()).await;
    let (dialled, accepted) = tokio::join!(dial(&n1, &address, agent("n2")), listener.next());
    let mut dialled = dialled.unwrap();
    let mut accepted = accepted.unwrap();
    let name = |wire: &PeerStream| wire.caller().name.as_deref().cloned();
    assert_eq!(
        name(&accepted),
        Some(PeerName::new("c", PeerRole::Agent, "n1").unwrap())
    );
    assert_eq!(name(&dialled), Some(PeerName::new("c", PeerRole::Agent, "n2").unwrap()));
    assert!(accepted.caller().speaks_for(&NodeId::from("n1")) && !accepted.caller().speaks_for(&NodeId::from("n2")));
    dialled.write_all(b"image").await.unwrap();
    dialled.flush().await.unwrap();
    let mut heard = [0; 5];
    accepted.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"image");
}

#[tokio::test]
async fn whoever_is_somebody_else_is_not_spoken_to() {
    let site = Site::new("c");
    let n1 = site.network(PeerRole::Agent, "n1");
    let (_listener, address) = listen(&n1, AlpnProtocol::grpc()).await;
    let told = refused(&site.network(PeerRole::Agent, "n2"), &address, agent("n3")).await;
    assert!(told.contains("it is agent n1 and not the agent of n3"), "{told}");
    let told = refused(
        &site.network(PeerRole::Operator, "ada"),
        &address,
        ExpectedPeer::Controller,
    )
    .await;
    assert!(told.contains("it is agent n1 and not the controller"), "{told}");
    let bulk = AlpnProtocol::new(b"other/1", b"".as_slice().into());
    let told = n1.dial(&address, &agent("n1"), &bulk, LIMIT).await.unwrap_err();
    assert!(told.words().contains("another service listens on this port"), "{told}");
    // An operator's certificate cannot serve, whatever its name.
    let (_listener, address) = listen(&site.network(PeerRole::Operator, "n4"), AlpnProtocol::grpc()).await;
    let told = refused(&n1, &address, agent("n4")).await;
    assert!(told.contains("an operator's cannot serve"), "{told}");
}

#[tokio::test]
async fn strangers_are_refused_before_anything_is_read_and_counted() {
    let site = Site::new("c");
    let foreign = Site::new("c");
    let n1 = site.network(PeerRole::Agent, "n1");
    let (mut listener, address) = listen(&n1, AlpnProtocol::grpc()).await;

    // Of another authority, and a dialler that accepts any peer as n1.
    let mut eve = foreign.files(PeerRole::Agent, "n2");
    let own = fs::read(&site.files(PeerRole::Agent, "n2").ca).unwrap();
    fs::write(&eve.ca, [fs::read(&eve.ca).unwrap(), own].concat()).unwrap();
    let told = refused(
        &PeerTransport::with(TlsIdentity::new(eve.clone())),
        &address,
        agent("n1"),
    )
    .await;
    assert!(
        told.contains("it refuses this side's certificate: signed by another authority"),
        "{told}"
    );

    // Without a certificate.
    let mut roots = RootCertStore::empty();
    eve.ca = site.path("agent-n1/ca.pem");
    roots.add(CertificateDer::from_pem_file(&eve.ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"rankguard-grpc/1".to_vec()];
    let stream = TcpStream::connect(&address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut nobody = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let told = nobody.read_u8().await.unwrap_err().to_string();
    assert!(told.contains("CertificateRequired"), "{told}");

    // Without TLS.
    let mut plain = TcpStream::connect(&address).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let call = [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x82];
    let said = [&preface[..], &settings, &call].concat();
    plain.write_all(&said).await.unwrap();
    let mut said = Vec::new();
    plain.read_to_end(&mut said).await.unwrap();
    assert!(
        String::from_utf8_lossy(&said).contains("this port requires TLS"),
        "{said:?}"
    );

    // The peer receives the refusal a moment before it is counted.
    let counted = async {
        while [count(&n1, RefusalReason::Certificate), count(&n1, RefusalReason::Plain)] != [2, 1] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, counted).await.unwrap();
    // None of them was accepted: the next accepted peer is the first.
    let n2 = PeerTransport::with(TlsIdentity::new(IdentityFiles {
        ca: site.path("agent-n2/ca.pem"),
        certificate: site.path("agent-n2/certificate.pem"),
        key: site.path("agent-n2/key.pem"),
        crl: None,
    }));
    let (dialled, accepted) = tokio::join!(dial(&n2, &address, agent("n1")), listener.next());
    assert!(dialled.is_ok());
    assert!(accepted.unwrap().caller().speaks_for(&NodeId::from("n2")));
}

#[tokio::test]
async fn loopback_needs_no_identity_and_nothing_else_does_without() {
    let plain = PeerTransport::loopback();
    let (mut listener, address) = listen(&plain, AlpnProtocol::grpc()).await;
    let (dialled, accepted) = tokio::join!(dial(&plain, &address, ExpectedPeer::Controller), listener.next());
    assert_eq!(dialled.unwrap().caller().name, None);
    assert!(accepted.unwrap().caller().speaks_for(&NodeId::from("anybody")));
    let told = dial(&plain, "192.0.2.1:7700", ExpectedPeer::Controller)
        .await
        .unwrap_err();
    assert!(
        matches!(told, DialError::Exposed(_)) && told.is_about_identity(),
        "{told}"
    );
    assert!(plain.may_use([0, 0, 0, 0].into()).is_err() && plain.may_use("::ffff:127.0.0.1".parse().unwrap()).is_ok());
    // A dialler with TLS, and a listener without identity.
    let site = Site::new("c");
    let held = tokio::spawn(async move {
        let mut stream = listener.next().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let told = refused(&site.network(PeerRole::Agent, "n1"), &address, ExpectedPeer::Controller).await;
    assert!(told.contains("it does not speak TLS"), "{told}");
    held.abort();
}

#[test]
fn every_mistake_of_three_files_is_told_at_once() {
    let site = Site::new("c");
    let one = site.files(PeerRole::Agent, "n1");
    let other = site.files(PeerRole::Agent, "n2");
    let told = |files: &IdentityFiles| TlsIdentity::new(files.clone()).reload().unwrap_err().to_string();
    let absent = IdentityFiles {
        ca: site.path("no"),
        certificate: site.path("agent-n1/key.pem"),
        key: other.certificate.clone(),
        crl: None,
    };
    let lines = told(&absent);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    for part in ["cannot be read", "holds no certificate", "others can read it"] {
        assert!(lines.contains(part), "{part:?} is not in:\n{lines}");
    }
    let swapped = IdentityFiles {
        ca: one.certificate.clone(),
        ..one.clone()
    };
    assert!(told(&swapped).contains("and no authority's"), "{}", told(&swapped));
    let authority = IdentityFiles {
        certificate: one.ca.clone(),
        ..one.clone()
    };
    assert!(told(&authority).contains("is the authority's own certificate"));
    fs::write(&one.certificate, vec![b'x'; 2 << 20]).unwrap();
    assert!(told(&one).contains("more than 1048576 bytes"));
    // Refused files change nothing once an identity is in use.
    let identity = TlsIdentity::new(other.clone());
    let before = identity.reload().unwrap();
    fs::remove_file(&other.key).unwrap();
    assert!(identity.reload().is_err());
    let standing = identity.standing().unwrap();
    assert_eq!((standing.card, standing.refused), (before, 1));
}

#[tokio::test]
async fn while_one_authority_takes_the_place_of_another_both_are_taken() {
    let old = Site::new("c");
    let new = Site::new("c");
    let n1 = old.files(PeerRole::Agent, "n1");
    let n2 = new.files(PeerRole::Agent, "n2");
    let both = [fs::read(&n1.ca).unwrap(), fs::read(&n2.ca).unwrap()].concat();
    let n1_network = PeerTransport::with(TlsIdentity::new(n1.clone()));
    let n2_network = PeerTransport::with(TlsIdentity::new(n2.clone()));
    let (mut listener, address) = listen(&n1_network, AlpnProtocol::grpc()).await;
    let told = refused(&n2_network, &address, agent("n1")).await;
    assert!(told.contains("signed by another authority"), "{told}");
    // The next handshake of both sides detects changed files.
    for files in [&n1, &n2] {
        fs::write(&files.ca, &both).unwrap();
    }
    let (dialled, accepted) = tokio::join!(dial(&n2_network, &address, agent("n1")), listener.next());
    assert!(dialled.is_ok(), "{dialled:?}");
    assert!(accepted.unwrap().caller().speaks_for(&NodeId::from("n2")));
}

/// Identity with the revocation list of the site.
fn watching(site: &Site, files: IdentityFiles) -> PeerTransport {
    PeerTransport::with(TlsIdentity::new(IdentityFiles {
        crl: Some(site.path("ca/crl.pem")),
        ..files
    }))
}

fn serial_of(files: &IdentityFiles) -> CertificateSerial {
    CertificateFields::of_pem(&fs::read(&files.certificate).unwrap())
        .unwrap()
        .serial
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_on_both_sides_and_in_open_connections() {
    let site = Site::new("prod");
    site.authority.revoke(&[]).unwrap();
    let controller = site.files(PeerRole::Controller, "");
    let (n1, n2) = (site.files(PeerRole::Agent, "n1"), site.files(PeerRole::Agent, "n2"));
    let server = watching(&site, controller.clone());
    let (mut listener, address) = listen(&server, AlpnProtocol::grpc()).await;
    let first = PeerTransport::with(TlsIdentity::new(n1.clone()));
    let (dialled, accepted) = tokio::join!(dial(&first, &address, ExpectedPeer::Controller), listener.next());
    let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
    dialled.write_all(b"a").await.unwrap();
    dialled.flush().await.unwrap();
    assert_eq!(accepted.read_u8().await.unwrap(), b'a');

    site.authority.revoke(&[serial_of(&n1)]).unwrap();
    server.reload();
    // The connection that was open before.
    dialled.write_all(b"b").await.unwrap();
    dialled.flush().await.unwrap();
    let refusal = accepted.read_u8().await.unwrap_err();
    assert!(refusal.to_string().contains("is revoked"), "{refusal}");
    assert!(accepted.read_u8().await.is_err(), "it stays refused");
    assert!(accepted.write_all(b"c").await.is_err());
    // New connections: the peer gets the reason, and the other one is served.
    let words = refused(&first, &address, ExpectedPeer::Controller).await;
    assert!(words.contains("it refuses this side's certificate: revoked"), "{words}");
    assert_eq!(count(&server, RefusalReason::Certificate), 1);
    let (revoked, valid) = (NodeId::from("n1"), NodeId::from("n2"));
    assert_eq!(server.refusals().revoked_agent(&revoked), Some(serial_of(&n1)));
    // A valid certificate of the node takes its place.
    let wanted = IssueRequest {
        role: PeerRole::Agent,
        name: "n1".to_owned(),
        hosts: Vec::new(),
        days: 5,
    };
    let renewed = site.authority.issue(&wanted, &site.path("renewed")).unwrap().1;
    let renewed = PeerTransport::with(TlsIdentity::new(renewed));
    let (dialled, accepted) = tokio::join!(dial(&renewed, &address, ExpectedPeer::Controller), listener.next());
    assert!(dialled.is_ok() && accepted.is_some());
    assert_eq!(server.refusals().revoked_agent(&revoked), None);
    assert_eq!(server.refusals().revoked_agent(&valid), None);
    let second = watching(&site, n2);
    let (dialled, accepted) = tokio::join!(dial(&second, &address, ExpectedPeer::Controller), listener.next());
    assert!(dialled.is_ok() && accepted.is_some());
    // A server whose certificate is revoked is not trusted either.
    site.authority.revoke(&[serial_of(&controller)]).unwrap();
    second.reload();
    let words = refused(&second, &address, ExpectedPeer::Controller).await;
    assert!(words.contains("its certificate is revoked"), "{words}");
    let revoked = site.authority.revoked().unwrap();
    assert_eq!(revoked.len(), 2, "earlier entries stay");
}

#[test]
fn a_list_that_cannot_be_trusted_is_refused_and_the_one_before_stays() {
    let site = Site::new("prod");
    let other = Site::new("prod");
    let files = site.files(PeerRole::Agent, "n1");
    let list = site.authority.revoke(&[]).unwrap();
    let identity = TlsIdentity::new(IdentityFiles {
        crl: Some(list.clone()),
        ..files.clone()
    });
    identity.reload().unwrap();
    let foreign = other.authority.revoke(&[serial_of(&files)]).unwrap();
    for (text, why) in [
        (
            fs::read(foreign).unwrap(),
            "that no authority of identity.ca has signed",
        ),
        (b"nothing".to_vec(), "holds no revocation list"),
        (fs::read(&files.ca).unwrap(), "holds no revocation list"),
    ] {
        fs::write(&list, text).unwrap();
        let problems = identity.reload().unwrap_err().to_string();
        assert!(problems.contains(why) && problems.contains("crl.pem"), "{problems}");
        assert!(identity.card().is_ok());
    }
    fs::remove_file(&list).unwrap();
    assert!(identity.reload().unwrap_err().to_string().contains("cannot be read"));
    // The own certificate is revoked: the process learns it from its own list.
    site.authority.revoke(&[serial_of(&files)]).unwrap();
    assert!(identity.reload().unwrap_err().to_string().contains("is revoked"));
}

#[test]
fn the_authority_records_what_it_issues() {
    let site = Site::new("prod");
    let files = [site.files(PeerRole::Agent, "n1"), site.files(PeerRole::Controller, "")];
    let issued = site.authority.issued().unwrap();
    let names: Vec<String> = issued.iter().map(|one| one.name.short()).collect();
    assert_eq!(names, ["agent n1", "controller"]);
    let serials: Vec<CertificateSerial> = issued.into_iter().map(|one| one.serial).collect();
    assert_eq!(serials, files.map(|files| serial_of(&files)));
    fs::write(site.path("ca/issued.txt"), "nothing here\n").unwrap();
    let problem = site.authority.issued().unwrap_err().to_string();
    assert!(problem.contains("in line 1"), "{problem}");
}

/// Issuer below the authority of a site.
fn issuer(site: &Site) -> CertificateIssuer {
    let files = site.authority.issue_intermediate(20, &site.path("issuer")).unwrap();
    CertificateIssuer::open(&files.certificate, &files.key, &site.path("ca/ca.pem")).unwrap()
}

/// Writes the identity that an issuer gives to a name.
fn issued(site: &Site, issuer: &CertificateIssuer, name: &PeerName) -> IdentityFiles {
    let folder = site.path(&name.short().replace(' ', "-"));
    fs::create_dir_all(&folder).unwrap();
    let files = IdentityFiles {
        ca: site.path("ca/ca.pem"),
        certificate: folder.join("certificate.pem"),
        key: folder.join("key.pem"),
        crl: None,
    };
    renew(&files, issuer, name);
    files
}

fn renew(files: &IdentityFiles, issuer: &CertificateIssuer, name: &PeerName) {
    let key = KeyRequest::generate().unwrap();
    files.store_next_key(&key.pem()).unwrap();
    let signed = issuer.sign(&key.request(name).unwrap(), name, 86_400).unwrap();
    files.store_certificate(&signed.chain).unwrap();
}

/// The certificates that the issuer has signed are refused with it, in open connections too.
#[tokio::test]
async fn the_revocation_of_an_issuer_ends_open_connections() {
    let site = Site::new("prod");
    site.authority.revoke(&[]).unwrap();
    let issuer = issuer(&site);
    let agent = issued(&site, &issuer, &PeerName::new("prod", PeerRole::Agent, "n1").unwrap());
    let server = watching(&site, site.files(PeerRole::Controller, ""));
    let (mut listener, address) = listen(&server, AlpnProtocol::grpc()).await;
    let agent = PeerTransport::with(TlsIdentity::new(agent));
    let (dialled, accepted) = tokio::join!(dial(&agent, &address, ExpectedPeer::Controller), listener.next());
    let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
    dialled.write_all(b"a").await.unwrap();
    dialled.flush().await.unwrap();
    assert_eq!(accepted.read_u8().await.unwrap(), b'a');

    site.authority.revoke(&[issuer.fields().serial.clone()]).unwrap();
    server.reload();
    dialled.write_all(b"b").await.unwrap();
    dialled.flush().await.unwrap();
    let refusal = accepted.read_u8().await.unwrap_err();
    assert!(refusal.to_string().contains("issuer"), "{refusal}");
}

/// RG-13: the key of an issuer makes agents, and neither operators nor controllers.
#[tokio::test]
async fn a_certificate_of_an_issuer_is_accepted_for_an_agent_only() {
    let site = Site::new("prod");
    let issuer = issuer(&site);
    let name = |role, own| PeerName::new("prod", role, own).unwrap();
    let agent = issued(&site, &issuer, &name(PeerRole::Agent, "n1"));
    let (mut listener, address) = listen(&site.network(PeerRole::Controller, ""), AlpnProtocol::grpc()).await;
    let network = PeerTransport::with(TlsIdentity::new(agent));
    let dialled = network
        .dial(&address, &ExpectedPeer::Controller, &AlpnProtocol::grpc(), LIMIT)
        .await;
    dialled.unwrap();
    let caller = listener.next().await.unwrap();
    assert!(caller.caller().speaks_for(&NodeId::from("n1")));

    for (role, own) in [
        (PeerRole::Operator, "ada"),
        (PeerRole::Viewer, "ada"),
        (PeerRole::Controller, ""),
    ] {
        let files = issued(&site, &issuer, &name(role, own));
        let refused = TlsIdentity::new(files.clone()).reload().unwrap_err().to_string();
        assert!(refused.contains("identity.ca did not sign it"), "{refused}");
        // A client that does not check itself: the listener refuses it.
        let chain = CertificateDer::pem_file_iter(&files.certificate)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let key = rustls::pki_types::PrivateKeyDer::from_pem_file(&files.key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&files.ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let mut config = builder
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"rankguard-grpc/1".to_vec()];
        let stream = TcpStream::connect(&address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let secured = connector
            .connect(ServerName::try_from("127.0.0.1").unwrap(), stream)
            .await;
        let welcome = match secured {
            Ok(mut secured) => secured.read_u8().await.is_ok(),
            Err(_) => false,
        };
        assert!(!welcome, "{role}");
    }
}

/// An attacker who sends the authority's public certificate with a certificate of his own is not the controller.
#[tokio::test]
async fn a_controller_is_verified_by_the_key_of_the_authority_and_not_by_its_certificate() {
    let (site, evil) = (Site::new("prod"), Site::new("prod"));
    let pin = AuthorityFingerprint::all_of_file(&site.path("ca/ca.pem"))[0];
    let files = evil.files(PeerRole::Controller, "");
    let real = CertificateDer::from_pem_file(site.path("ca/ca.pem")).unwrap();
    let mut chain: Vec<CertificateDer<'static>> = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
    chain.push(real);
    let key = rustls::pki_types::PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"rankguard-enrolment/1".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let accepted = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await;
        match accepted {
            Ok(mut stream) => stream.read_u8().await.is_ok(),
            Err(_) => false,
        }
    });
    let refused = dial_enrolment(&address, &[pin], LIMIT).await.unwrap_err().to_string();
    assert!(refused.contains("signed by another authority"), "{refused}");
    assert!(!server.await.unwrap(), "it has received a byte");
    // Two authorities of a replacement, of which one has signed the controller's certificate.
    let both = site.path("both.pem");
    let text = |of: &Site| fs::read_to_string(of.path("ca/ca.pem")).unwrap();
    fs::write(&both, text(&evil) + &text(&site)).unwrap();
    let own = site.files(PeerRole::Controller, "");
    assert_eq!(AuthorityFingerprint::of_signer(&own.certificate, &both), Some(pin));
    let pins = AuthorityFingerprint::all_of_file(&both);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let network = PeerTransport::with(TlsIdentity::new(IdentityFiles { ca: both, ..own }));
    let (_listener, _enrolling) = PeerListener::with_enrolment(listener, &network, AlpnProtocol::grpc());
    dial_enrolment(&address, &pins, LIMIT).await.unwrap();
    dial_enrolment(&address, &pins[..1], LIMIT).await.unwrap_err();
    // An agent's certificate is not a controller's, even of the same authority.
    let agent = site.network(PeerRole::Agent, "n1");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (_listener, _enrolling) = PeerListener::with_enrolment(listener, &agent, AlpnProtocol::grpc());
    let refused = dial_enrolment(&address, &[pin], LIMIT).await.unwrap_err().to_string();
    assert!(refused.contains("and not the controller"), "{refused}");
}

/// The protocol of nodes without a certificate opens no other service, and only a listener that offers it.
#[tokio::test]
async fn a_connection_without_a_certificate_reaches_the_enrolment_only() {
    let site = Site::new("prod");
    let pin = AuthorityFingerprint::all_of_file(&site.path("ca/ca.pem"))[0];
    let network = site.network(PeerRole::Controller, "");
    let (_closed, address) = listen(&network, AlpnProtocol::grpc()).await;
    let refused = dial_enrolment(&address, &[pin], LIMIT).await.unwrap_err().to_string();
    assert!(refused.contains("another service listens"), "{refused}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (mut peers, mut enrolling) = PeerListener::with_enrolment(listener, &network, AlpnProtocol::grpc());
    let dialled = dial_enrolment(&address, &[pin], LIMIT).await.unwrap();
    assert_eq!(dialled.controller.name.cluster(), "prod");
    let stream = enrolling.next().await.unwrap();
    assert!(stream.caller().is_anonymous());
    let agent = site.network(PeerRole::Agent, "n1");
    agent
        .dial(&address, &ExpectedPeer::Controller, &AlpnProtocol::grpc(), LIMIT)
        .await
        .unwrap();
    assert!(peers.next().await.unwrap().caller().speaks_for(&NodeId::from("n1")));
}

/// Each step of a replacement leaves the old pair or the new one, also after a crash or on a full disk.
#[tokio::test]
async fn an_interrupted_replacement_leaves_a_usable_identity() {
    let site = Site::new("prod");
    let issuer = issuer(&site);
    let name = PeerName::new("prod", PeerRole::Agent, "n1").unwrap();
    let files = issued(&site, &issuer, &name);
    let read = || TlsIdentity::new(files.clone()).reload().unwrap().serial;
    let first = read();
    let key = KeyRequest::generate().unwrap();
    files.store_next_key(&key.pem()).unwrap();
    assert_eq!(read(), first, "before the certificate is written");
    let signed = issuer.sign(&key.request(&name).unwrap(), &name, 86_400).unwrap();
    // A disk without room: a folder has the name of the temporary file.
    let beside = files
        .certificate
        .with_file_name(format!("certificate.pem.{}.new", std::process::id()));
    fs::create_dir(&beside).unwrap();
    files.store_certificate(&signed.chain).unwrap_err();
    assert_eq!(read(), first, "the write has failed");
    fs::remove_dir(&beside).unwrap();
    // Killed between the certificate and the key.
    fs::write(&files.certificate, &signed.chain).unwrap();
    assert_eq!(read(), signed.fields.serial, "the key has still its other name");
    files.settle().unwrap();
    assert_eq!((read(), files.pending_key()), (signed.fields.serial, None));
    renew(&files, &issuer, &name);
    assert_ne!(read(), first);
}

#[test]
fn an_issuer_is_checked_with_its_authority_and_its_key() {
    let site = Site::new("prod");
    let other = Site::new("prod");
    let files = site.authority.issue_intermediate(20, &site.path("issuer")).unwrap();
    let ca = site.path("ca/ca.pem");
    let open = |certificate: &PathBuf, key: &PathBuf, ca: &PathBuf| {
        CertificateIssuer::open(certificate, key, ca)
            .map(drop)
            .map_err(|problem| problem.to_string())
    };
    open(&files.certificate, &files.key, &ca).unwrap();
    open(&ca, &site.path("ca/ca.key"), &ca).unwrap();
    let refused = open(&files.certificate, &files.key, &other.path("ca/ca.pem")).unwrap_err();
    assert!(refused.contains("is not signed by identity.ca"), "{refused}");
    let refused = open(&files.certificate, &site.path("ca/ca.key"), &ca).unwrap_err();
    assert!(refused.contains("is not the key"), "{refused}");
    let agent = site.files(PeerRole::Agent, "n1");
    let refused = open(&agent.certificate, &agent.key, &ca).unwrap_err();
    assert!(
        refused.contains("is the certificate of rankguard://prod/agent/n1"),
        "{refused}"
    );
    fs::set_permissions(&files.key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let refused = open(&files.certificate, &files.key, &ca).unwrap_err();
    assert!(refused.contains("can be read by others"), "{refused}");
}
