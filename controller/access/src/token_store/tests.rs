use std::fs;
use std::thread;

use super::*;

const NOW: Timestamp = Timestamp(1_000_000_000_000);

fn request(name: &str, role: AccessRole) -> NewToken {
    NewToken {
        name: name.to_owned(),
        role,
        scope: TokenScope::default(),
        valid: Duration::from_secs(3_600),
    }
}

fn store() -> (tempfile::TempDir, TokenStore) {
    let dir = tempfile::tempdir().expect("a folder");
    let store = TokenStore::open(dir.path()).expect("no file");
    (dir, store)
}

#[test]
fn a_token_survives_a_restart_and_its_value_is_not_in_the_file() {
    let (dir, store) = store();
    let (view, secret) = store
        .create(&request("ci", AccessRole::Operator), "operator ada", NOW)
        .expect("created");
    let text = secret.expose();
    let used = store
        .authenticate(text, NOW.after(Duration::from_secs(9)))
        .expect("accepted");
    assert_eq!(
        (used.id.as_str(), used.role),
        (view.details.id.as_str(), AccessRole::Operator)
    );
    store.save_rest().expect("saved");
    let file = fs::read_to_string(dir.path().join("tokens.txt")).expect("text");
    assert!(!file.contains(&text[4..20]), "{file}");
    let again = TokenStore::open(dir.path()).expect("sound");
    assert_eq!(
        again.list(NOW)[0].details.last_used_at,
        Some(NOW.after(Duration::from_secs(9)))
    );
    assert!(again.authenticate(text, NOW).is_ok());
    store.revoke("ci", "operator bob", NOW).expect("revoked");
    let again = TokenStore::open(dir.path()).expect("sound");
    assert!(matches!(
        again.authenticate(text, NOW),
        Err(TokenRejection::Revoked { .. })
    ));
}

#[test]
fn each_state_of_a_token_has_its_rejection() {
    let (_dir, store) = store();
    let (view, secret) = store
        .create(&request("a", AccessRole::Viewer), "local", NOW)
        .expect("created");
    let (_other, foreign) = {
        let (dir, other) = super::tests::store();
        (
            dir,
            other
                .create(&request("a", AccessRole::Admin), "local", NOW)
                .expect("created")
                .1,
        )
    };
    let text = secret.expose();
    assert_eq!(store.authenticate(foreign.expose(), NOW), Err(TokenRejection::Unknown));
    assert_eq!(store.authenticate("rgt_", NOW), Err(TokenRejection::Malformed));
    let last = NOW.after(Duration::from_secs(3_600));
    assert!(store.authenticate(text, Timestamp(last.0 - 1)).is_ok());
    let id = view.details.id.clone();
    assert_eq!(
        store.authenticate(text, last),
        Err(TokenRejection::Expired { id: id.clone() })
    );
    store.revoke(&view.details.id, "local", NOW).expect("revoked");
    assert_eq!(store.authenticate(text, NOW), Err(TokenRejection::Revoked { id }));
    assert!(matches!(
        store.revoke(&view.details.id, "local", NOW),
        Err(TokenError::Revoked { .. })
    ));
    assert!(matches!(
        store.revoke("a", "local", NOW),
        Err(TokenError::Absent { .. })
    ));
}

#[test]
fn wrong_requests_are_refused() {
    let (_dir, store) = store();
    let scoped = TokenScope {
        job_prefix: Some("a".to_owned()),
        ..TokenScope::default()
    };
    let good = request("good", AccessRole::Viewer);
    let refused = [
        NewToken {
            name: String::new(),
            ..good.clone()
        },
        NewToken {
            name: "a b".to_owned(),
            ..good.clone()
        },
        NewToken {
            name: "gr\u{fc}n".to_owned(),
            ..good.clone()
        },
        NewToken {
            role: AccessRole::Admin,
            scope: scoped,
            ..good.clone()
        },
        NewToken {
            valid: Duration::ZERO,
            ..good.clone()
        },
        NewToken {
            valid: Duration::from_secs(400 * 86_400),
            ..good.clone()
        },
    ];
    for request in refused {
        assert!(store.create(&request, "local", NOW).is_err(), "{request:?}");
    }
    store.create(&good, "local", NOW).expect("created");
    assert!(matches!(
        store.create(&good, "local", NOW),
        Err(TokenError::Exists { .. })
    ));
    store.revoke("good", "local", NOW).expect("revoked");
    store.create(&good, "local", NOW).expect("the name is free again");
}

/// Sixteen revocations at once: all hold, in memory and on disk.
#[test]
fn revocations_at_once_lose_none() {
    let (dir, store) = store();
    let names: Vec<String> = (0..16).map(|number| format!("t{number}")).collect();
    for name in &names {
        store
            .create(&request(name, AccessRole::Viewer), "local", NOW)
            .expect("created");
    }
    let mut seen = store.revocations();
    thread::scope(|scope| {
        for name in &names {
            scope.spawn(|| store.revoke(name, "local", NOW).expect("revoked"));
        }
    });
    assert!(seen.has_changed().expect("open"));
    assert_eq!(*seen.borrow_and_update(), 16);
    let again = TokenStore::open(dir.path()).expect("sound");
    for view in again.list(NOW).iter().chain(&store.list(NOW)) {
        assert_eq!(view.state, TokenState::Revoked, "{view:?}");
    }
}

/// A disk that fails undoes no revocation, and creates no token that a restart would forget.
#[test]
fn a_revocation_holds_although_the_disk_fails() {
    let (dir, store) = store();
    let (view, secret) = store
        .create(&request("a", AccessRole::Viewer), "local", NOW)
        .expect("created");
    let folder = dir.path().to_owned();
    drop(dir);
    let id = &view.details.id;
    for token in ["a", id, id] {
        let revoked = store.revoke(token, "local", NOW).expect("revoked in memory");
        assert!(revoked.unsaved.expect("a cause").contains("tokens.txt"));
    }
    assert!(!store.is_active(id, NOW));
    assert!(store.authenticate(secret.expose(), NOW).is_err());
    assert!(store.create(&request("b", AccessRole::Viewer), "local", NOW).is_err());
    assert_eq!(store.list(NOW).len(), 1);
    fs::create_dir(&folder).expect("the disk works again");
    store.save_rest().expect("written");
    assert!(matches!(
        store.revoke(id, "local", NOW),
        Err(TokenError::Revoked { .. })
    ));
    let again = TokenStore::open(&folder).expect("sound");
    assert_eq!(again.list(NOW)[0].state, TokenState::Revoked);
    fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn ended_tokens_are_removed_after_their_time() {
    let (_dir, store) = store();
    store
        .create(&request("old", AccessRole::Viewer), "local", NOW)
        .expect("created");
    let later = NOW.after(ENDED_RETENTION + Duration::from_secs(3_601));
    store
        .create(&request("new", AccessRole::Viewer), "local", later)
        .expect("created");
    let names = |at| -> Vec<String> { store.list(at).into_iter().map(|view| view.details.name).collect() };
    assert_eq!(names(later), ["new"]);
    let much_later = later.after(ENDED_RETENTION + Duration::from_secs(3_601));
    assert_eq!(
        names(much_later),
        Vec::<String>::new(),
        "without a change of the tokens, too"
    );
}
