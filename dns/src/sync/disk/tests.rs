use fdn_core::message::{AppBindings, BindingsDesired, TxtRecords};

use super::*;

fn desired() -> DesiredState {
    let mut desired = DesiredState::default();
    desired.network(NetworkDesired {
        revision: Revision(3),
        clusters: vec![],
        locations: vec![],
        measured: vec![],
    });
    for (name, revision) in [("a", 4), ("b", 5), ("gone", 6)] {
        let state = AppBindings {
            holders: fdn_core::message::Holders::EVERYWHERE,
            host: format!("{name}.fn.test").parse().expect("host"),
            ttl_s: 20,
            bindings: vec![],
        };
        desired.bindings(BindingsDesired {
            app: name.parse().expect("app"),
            revision: Revision(revision),
            state: (name != "gone").then_some(state),
        });
    }
    for (name, revision) in [("_acme-challenge.a", 7), ("gone", 8)] {
        let state = TxtRecords {
            ttl_s: 60,
            values: vec!["one".to_owned(), "two".to_owned()],
            expires_at: Some(Timestamp(9)),
        };
        desired.text(TxtDesired {
            name: format!("{name}.fn.test").parse().expect("name"),
            revision: Revision(revision),
            state: (name != "gone").then_some(state),
        });
    }
    let list = [
        ("192.0.2.0/24", "eu"),
        ("10.0.0.0/8", "us"),
        ("2001:db8::/32", "eu"),
    ];
    let list = list.map(|(p, c)| (p.parse().expect("prefix"), c.parse().expect("cluster")));
    let table = Arc::new(Bindings::new(list).expect("few clusters"));
    for app in ["a", "b"] {
        desired.set_bindings(&app.parse().expect("app"), Arc::clone(&table));
    }
    desired
}

#[test]
fn what_was_saved_is_loaded_and_shared_tables_stay_shared() {
    let dir = tempfile::tempdir().expect("folder");
    let deep = dir.path().join("a/b");
    assert!(matches!(load(&deep).expect("usable"), LoadedState::Nothing));
    save(&deep, &desired()).expect("saved");
    let LoadedState::State(found) = load(&deep).expect("usable") else {
        panic!("no state")
    };
    assert_eq!(*found, desired());
    let tables: Vec<_> = found.apps().map(|(_, _, state)| &state.bindings).collect();
    assert!(Arc::ptr_eq(tables[0], tables[1]));
    assert_eq!(tables[0].len(), 3);
    assert_eq!(
        fs::read_dir(&deep).expect("folder").count(),
        1,
        "no temporary file is left"
    );
}

#[test]
fn a_damaged_file_is_moved_aside() {
    let dir = tempfile::tempdir().expect("folder");
    save(dir.path(), &desired()).expect("saved");
    let path = dir.path().join(FILE);
    let whole = fs::read(&path).expect("bytes");
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let longer = [whole.as_slice(), b"x"].concat();
    let mut damaged = vec![whole[..whole.len() / 2].to_vec(), longer, Vec::new()];
    damaged.extend((0..whole.len()).step_by(7).map(flipped));
    damaged.extend((whole.len() - 60..whole.len()).map(flipped));
    for bytes in damaged {
        fs::write(&path, &bytes).expect("write");
        let LoadedState::Unreadable(aside, _) = load(dir.path()).expect("usable") else {
            panic!("not noticed")
        };
        assert!(aside.exists() && !path.exists());
    }
}

#[test]
fn the_file_of_an_earlier_build_is_read_and_replaced() {
    let dir = tempfile::tempdir().expect("folder");
    let text = r#"{"format":1,"ledger":{"floor":6,"confirmed_at":7,"network":null,"apps":[
        {"app":"a","revision":4,"state":{"host":"a.fn.test","ttl_s":20,"bindings":[["192.0.2.0/24","eu"]]}},
        {"app":"gone","revision":9,"state":null}]}}"#;
    let old = dir.path().join(OLD_FILE);
    fs::write(&old, text).expect("written");
    let LoadedState::State(found) = load(dir.path()).expect("usable") else {
        panic!("no state")
    };
    let apps: Vec<_> = found
        .apps()
        .map(|(app, revision, state)| (app.to_string(), revision.get(), state.bindings.len()))
        .collect();
    assert_eq!(apps, [("a".to_owned(), 4, 1)]);
    assert_eq!(
        (found.revision(), found.confirmed_at()),
        (Revision(9), Timestamp(7))
    );
    save(dir.path(), &found).expect("saved");
    assert!(!old.exists());
    let LoadedState::State(again) = load(dir.path()).expect("usable") else {
        panic!("no state")
    };
    assert_eq!(again, found);
    fs::write(&old, text.replace("\"format\":1", "\"format\":9")).expect("written");
    fs::remove_file(dir.path().join(FILE)).expect("removed");
    assert!(matches!(
        load(dir.path()).expect("usable"),
        LoadedState::Unreadable(..)
    ));
}
