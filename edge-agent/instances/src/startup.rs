//! The common part of every start of an instance outside this process: it is never interrupted in the middle, and undone if nobody waits for
//! it any more.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::InstanceId;
use tokio::sync::{oneshot, watch};

use crate::error::{Remains, RuntimeError, StartError};
use crate::link::{HttpLink, health};
use crate::log::LogTail;
use crate::runtime::Kind;
use crate::spec::{Readiness, StartSpec};
use crate::state::{Exit, InstanceState, StateCell};

/// The first pause between two attempts to undo a start, which doubles, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Tells whether somebody still waits for the outcome of a start.
#[derive(Debug)]
pub(crate) struct StartWaiter<T>(oneshot::Sender<Result<T, StartError>>);

impl<T> StartWaiter<T> {
    /// Fails if nobody waits for the start any more.
    ///
    /// # Errors
    /// When nobody does.
    pub(crate) fn ensure_waiting(&self) -> Result<(), StartError> {
        if self.0.is_closed() {
            return Err(abandoned());
        }
        Ok(())
    }

    /// Continues with a part of a start for as long as somebody waits.
    ///
    /// # Errors
    /// The error of the part, or one that says that nobody waits any more.
    pub(crate) async fn run_while_waiting(
        &mut self,
        part: impl Future<Output = Result<(), StartError>>,
    ) -> Result<(), StartError> {
        tokio::select! {
            done = part => done,
            () = self.0.closed() => Err(abandoned()),
        }
    }
}

/// The runtime-specific part of a start.
pub(crate) trait Starter: Send + Sync + 'static {
    /// The runtime's handle to a started instance.
    type Instance: Send + Sync + 'static;

    /// The kind of the runtime.
    const KIND: Kind;

    /// Notes that an instance of this specification is being started. `false` if there already is one with its id.
    fn begin(&self, spec: &StartSpec) -> bool;

    /// Starts it. `made` is set as soon as there is something to undo.
    fn launch(
        self: &Arc<Self>,
        spec: &StartSpec,
        made: &mut Option<Arc<Self::Instance>>,
        waiter: &mut StartWaiter<Arc<Self::Instance>>,
    ) -> impl Future<Output = Result<Arc<Self::Instance>, StartError>> + Send;

    /// Removes what was made of it, and forgets the id. After an error something may be left, and the id is still taken: it may be called again.
    fn roll_back(
        &self,
        id: InstanceId,
        made: Option<&Self::Instance>,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;
}

/// Starts an instance on a separate task, so that no order is ever interrupted: otherwise something could be created of which nobody
/// knows. A start whose future was dropped is undone when it next waits. A failure is told once it was tried to undo the start: as
/// [`StartError::Remains`] if something is left, which may stay for as long as the engine does not answer.
pub(crate) async fn start<S: Starter>(
    starter: Arc<S>,
    spec: StartSpec,
) -> Result<Arc<S::Instance>, StartError> {
    let id = spec.description.id;
    if !starter.begin(&spec) {
        return Err(StartError::Exists { id });
    }
    let (reply, answer) = oneshot::channel();
    tokio::spawn(async move {
        let (mut made, mut waiter) = (None, StartWaiter(reply));
        let launched = starter.launch(&spec, &mut made, &mut waiter).await;
        let failure = match launched {
            Err(error) => Some((error, waiter.0)),
            // Perhaps nobody waits for it any more.
            Ok(started) => match waiter.0.send(Ok(started)) {
                Ok(()) => return,
                Err(_) => None,
            },
        };
        let undone = starter.roll_back(id, made.as_deref()).await;
        let remains = failure.and_then(|(error, reply)| tell(error, reply, undone.is_ok()));
        undo(starter, id, made.as_deref(), undone).await;
        drop(remains);
    });
    answer.await.unwrap_or_else(|_| {
        Err(StartError::Engine(RuntimeError::Unusable {
            kind: S::KIND,
            reason: "the start failed in itself".to_owned(),
        }))
    })
}

/// Tells why a start failed. Returns what to drop once nothing is left of it, if something is.
fn tell<T>(
    error: StartError,
    reply: oneshot::Sender<Result<T, StartError>>,
    undone: bool,
) -> Option<watch::Sender<()>> {
    let (there, remains) = Remains::new();
    let (error, there) = if undone {
        (error, None)
    } else {
        let error = Box::new(error);
        (StartError::Remains { error, remains }, Some(there))
    };
    // Perhaps nobody waits for it any more.
    drop(reply.send(Err(error)));
    there
}

/// Goes on with undoing a start, of which the first attempt ended like this, until nothing is left of it or the runtime is dropped. Until then
/// its id is taken.
async fn undo<S: Starter>(
    starter: Arc<S>,
    id: InstanceId,
    made: Option<&S::Instance>,
    mut undone: Result<(), RuntimeError>,
) {
    let runtime = Arc::downgrade(&starter);
    drop(starter);
    let mut pause = FIRST_PAUSE;
    while let Err(error) = undone {
        tracing::warn!(instance = %id, %error, again_in = ?pause, "what a failed start left could not be removed");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let Some(starter) = runtime.upgrade() else {
            return;
        };
        undone = starter.roll_back(id, made).await;
    }
}

/// Waits until a started instance answers, and sets its state to ready.
///
/// # Errors
/// When it ends before that, or does not answer in time; with its last lines.
pub(crate) async fn await_ready(
    state: &StateCell,
    log: &LogTail,
    link: &HttpLink,
    readiness: &Readiness,
) -> Result<(), StartError> {
    let outcome = tokio::select! {
        biased;
        exit = state.ended() => return Err(exited(exit, log)),
        outcome = health::until_ready(link, readiness) => outcome,
    };
    match outcome {
        Ok(()) if state.set(InstanceState::Ready) => Ok(()),
        Ok(()) => Err(exited(state.ended().await, log)),
        Err(reason) => Err(StartError::NotReady {
            after: readiness.timeout,
            reason,
            log: log.lines(),
        }),
    }
}

/// The error of a start whose instance ended before it answered.
pub(crate) fn exited(exit: Exit, log: &LogTail) -> StartError {
    StartError::Exited {
        exit,
        log: log.lines(),
    }
}

/// The error of a start that nobody waits for any more.
const fn abandoned() -> StartError {
    StartError::Exited {
        exit: Exit::lost(),
        log: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use fdn_core::{Digest, MebiBytes, MilliCpu, Resources};
    use tokio::sync::Notify;

    use super::*;
    use crate::spec::{Image, ImageSource};

    /// Starts that continue when notified, and the list of what is left of them.
    #[derive(Default)]
    struct Scripted {
        go: Notify,
        began: Notify,
        undone: Notify,
        left: Mutex<Vec<InstanceId>>,
        fail: bool,
        /// How many attempts to undo one fail.
        stuck: Mutex<u32>,
    }

    impl Starter for Scripted {
        type Instance = InstanceId;
        const KIND: Kind = Kind::Fake;

        fn begin(&self, spec: &StartSpec) -> bool {
            let mut left = self.left.lock().unwrap();
            let new = !left.contains(&spec.description.id);
            left.extend(new.then_some(spec.description.id));
            new
        }

        async fn launch(
            self: &Arc<Self>,
            spec: &StartSpec,
            made: &mut Option<Arc<InstanceId>>,
            waiter: &mut StartWaiter<Arc<InstanceId>>,
        ) -> Result<Arc<InstanceId>, StartError> {
            let instance = Arc::new(spec.description.id);
            *made = Some(instance.clone());
            self.began.notify_one();
            waiter
                .run_while_waiting(async {
                    self.go.notified().await;
                    Ok(())
                })
                .await?;
            if self.fail {
                return Err(abandoned());
            }
            Ok(instance)
        }

        async fn roll_back(
            &self,
            id: InstanceId,
            made: Option<&InstanceId>,
        ) -> Result<(), RuntimeError> {
            assert_eq!(made, Some(&id));
            let mut stuck = self.stuck.lock().unwrap();
            if *stuck > 0 {
                *stuck -= 1;
                return Err(RuntimeError::Unreachable {
                    kind: Kind::Fake,
                    reason: "the script says so".to_owned(),
                });
            }
            self.left.lock().unwrap().retain(|left| *left != id);
            self.undone.notify_one();
            Ok(())
        }
    }

    fn spec() -> StartSpec {
        let image = Image {
            digest: Digest::of(b"image"),
            source: ImageSource::Registry {
                repository: "r.example.com/i".to_owned(),
                credentials: None,
            },
        };
        StartSpec::new(
            InstanceId::from_uuid(uuid::Uuid::from_u128(1)),
            "a".parse().unwrap(),
            "f".parse().unwrap(),
            image,
            Resources::new(MilliCpu(1), MebiBytes(1)),
        )
    }

    #[tokio::test]
    async fn a_start_that_is_dropped_is_taken_back() {
        let starter = Arc::new(Scripted::default());
        let starting = tokio::spawn(start(starter.clone(), spec()));
        starter.began.notified().await;
        let again = start(starter.clone(), spec()).await;
        assert!(matches!(again, Err(StartError::Exists { .. })), "{again:?}");
        starting.abort();
        starter.undone.notified().await;
        assert!(starter.left.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn one_that_fails_is_taken_back_before_that_is_told_and_one_that_succeeds_stays() {
        for fail in [true, false] {
            let starter = Arc::new(Scripted {
                fail,
                ..Scripted::default()
            });
            starter.go.notify_one();
            let started = start(starter.clone(), spec()).await;
            assert_eq!(started.is_err(), fail);
            assert_eq!(starter.left.lock().unwrap().is_empty(), fail);
        }
    }

    #[tokio::test]
    async fn a_failure_is_told_although_something_is_left_and_the_id_is_taken_until_it_is_gone() {
        let starter = Arc::new(Scripted {
            fail: true,
            stuck: Mutex::new(2),
            ..Scripted::default()
        });
        starter.go.notify_one();
        let failed = start(starter.clone(), spec()).await;
        let Err(StartError::Remains { error, remains }) = failed else {
            panic!("something is left: {failed:?}");
        };
        assert_eq!(*error, abandoned());
        assert_eq!(*starter.stuck.lock().unwrap(), 1, "it was tried");
        let again = start(starter.clone(), spec()).await;
        assert!(matches!(again, Err(StartError::Exists { .. })), "{again:?}");
        remains.gone().await;
        assert_eq!(*starter.stuck.lock().unwrap(), 0, "tried again");
        assert!(starter.left.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_cannot_be_undone_is_left_when_the_runtime_is_dropped() {
        let starter = Arc::new(Scripted {
            fail: true,
            stuck: Mutex::new(u32::MAX),
            ..Scripted::default()
        });
        starter.go.notify_one();
        let failed = start(starter, spec()).await;
        let Err(StartError::Remains { remains, .. }) = failed else {
            panic!("something is left: {failed:?}");
        };
        // Nobody tries any more.
        remains.gone().await;
    }
}
