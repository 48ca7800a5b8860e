use fdn_core::Timestamp;
use fdn_core::fleet::Revoked;

use super::*;

fn node() -> NodeId {
    "n-1".parse().expect("node")
}

fn desired(revision: u64, cordoned: &[&str], revoked: &[&str]) -> FleetDesired {
    FleetDesired {
        revision: Revision(revision),
        cordoned: cordoned.iter().map(|n| n.parse().expect("node")).collect(),
        revoked: revoked
            .iter()
            .map(|serial| Revoked {
                serial: (*serial).to_owned(),
                node: node(),
                expires_at: Timestamp(9),
            })
            .collect(),
        authorities: vec!["authority one\n".to_owned(), "authority two".to_owned()],
        ..FleetDesired::default()
    }
}

#[test]
fn the_newest_counts_and_survives_a_restart() {
    let folder = tempfile::tempdir().expect("folder");
    let open = || {
        let state = folder.path().join("state");
        Fleet::open(state, node(), TlsSettings::default()).expect("opened")
    };
    let fleet = open();
    assert_eq!(
        (fleet.view().work(), fleet.view().revision()),
        (Work::Taken, Revision::NONE)
    );
    assert!(
        fleet
            .apply(desired(5, &["n-1", "n-2"], &["ab"]))
            .expect("kept")
    );
    for stale in [4, 5] {
        assert!(!fleet.apply(desired(stale, &[], &[])).expect("ignored"));
    }
    drop(fleet);
    let fleet = open();
    let view = fleet.view();
    assert_eq!(
        (view.work(), view.revision()),
        (Work::Cordoned, Revision(5))
    );
    assert!(view.is_cordoned(&"n-2".parse().expect("node")) && view.is_revoked("ab"));
    let watched = fleet.subscribe();
    assert!(fleet.apply(desired(6, &[], &[])).expect("kept"));
    assert!(watched.has_changed().expect("the fleet lives"));
    assert_eq!(fleet.view().work(), Work::Taken);
    std::fs::write(folder.path().join("state/fleet.json"), "{").expect("written");
    assert_eq!(
        open().view().revision(),
        Revision::NONE,
        "the snapshot brings it"
    );
}

#[tokio::test]
async fn a_revocation_is_heard_of_by_who_was_there_before_it() {
    let folder = tempfile::tempdir().expect("folder");
    let state = folder.path().join("state");
    let fleet = Fleet::open(state, node(), TlsSettings::default()).expect("opened");
    let mut revoked = Box::pin(fleet.revocation("ab"));
    assert!(futures::poll!(revoked.as_mut()).is_pending());
    fleet.apply(desired(1, &[], &["cd"])).expect("kept");
    assert!(futures::poll!(revoked.as_mut()).is_pending(), "another one");
    fleet.apply(desired(2, &[], &["ab"])).expect("kept");
    assert!(futures::poll!(revoked.as_mut()).is_ready());
    let mut late = Box::pin(fleet.revocation("ab"));
    assert!(futures::poll!(late.as_mut()).is_pending(), "it was before");
    fleet.revoked("ab").await;
}

#[test]
fn a_node_whose_own_certificate_is_revoked_was_removed() {
    let view = |serial: Option<&str>| {
        FleetView::new(
            &node(),
            serial.map(str::to_owned),
            desired(1, &["n-1"], &["ab"]),
        )
    };
    assert_eq!(view(Some("ab")).work(), Work::Removed);
    assert_eq!(view(Some("cd")).work(), Work::Cordoned);
    assert_eq!(view(None).work(), Work::Cordoned);
    let joined_anew = view(Some("ab")).with_serial(&node(), "cd".to_owned());
    assert_eq!(
        (joined_anew.work(), joined_anew.serial()),
        (Work::Cordoned, Some("cd"))
    );
}

#[test]
fn whom_to_trust_is_written_where_the_settings_say() {
    let folder = tempfile::tempdir().expect("folder");
    let ca = folder.path().join("ca.pem");
    let tls = TlsSettings {
        ca: Some(ca.clone()),
        ..TlsSettings::default()
    };
    let fleet = Fleet::open(folder.path().join("state"), node(), tls).expect("opened");
    fleet.apply(desired(1, &[], &[])).expect("kept");
    let read = || std::fs::read_to_string(&ca).expect("written");
    assert_eq!(read(), "authority one\nauthority two\n");
    let nobody = FleetDesired {
        authorities: Vec::new(),
        ..desired(2, &[], &[])
    };
    fleet.apply(nobody).expect("kept");
    assert_eq!(
        read(),
        "authority one\nauthority two\n",
        "trust is never taken away whole"
    );
    fleet
        .renewed("cd".to_owned(), &["next".to_owned()])
        .expect("written");
    assert_eq!(read(), "next\n");
    assert_eq!(fleet.view().serial(), Some("cd"));
}
