//! The contract of `Broker`, tested against both implementations.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fdn_bus::{
    AmqpBroker, AmqpOptions, DELIVERY_LIMIT, Deliveries, Delivery, Limits, MemoryBroker,
    SharedBroker, Subscription,
};
use fdn_core::message::{AppDesired, Channel, Envelope, JobTicket, Message};
use fdn_core::{JobId, MessageId, Revision, Timestamp};
use fdn_testkit::{rabbitmq, wait};
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use url::Url;
use uuid::Uuid;

const SMALL: Limits = Limits {
    queue: 50,
    dead_letters: 10,
};

/// Messages with numbers above this are probes: they only test whether something arrives.
const PROBES: u64 = 1_000_000;

fn memory() -> SharedBroker {
    Arc::new(MemoryBroker::new(SMALL))
}

async fn rabbit() -> SharedBroker {
    let server = rabbitmq::broker().await;
    Arc::new(AmqpBroker::connect(options(server.url, server.namespace)).expect("options are valid"))
}

fn options(url: String, namespace: String) -> AmqpOptions {
    AmqpOptions {
        url,
        password_file: None,
        namespace,
        name: "contract test".to_owned(),
        limits: SMALL,
    }
}

fn change(n: u64) -> Envelope {
    let message = Message::AppDesired(AppDesired {
        app: "hello".parse().expect("app"),
        revision: Revision(n),
        spec: None,
    });
    Envelope::new(MessageId::from_uuid(Uuid::now_v7()), Timestamp(n), message)
}

fn ticket(n: u64) -> Envelope {
    let job = JobId::from_uuid(Uuid::from_u128(u128::from(n)));
    let message = Message::JobTicket(JobTicket { job });
    Envelope::new(MessageId::from_uuid(Uuid::now_v7()), Timestamp(n), message)
}

async fn subscribe(
    broker: &SharedBroker,
    channel: Channel,
    consumer: &str,
    prefetch: u16,
) -> Deliveries {
    let subscription = Subscription {
        channel,
        consumer: consumer.to_owned(),
        prefetch,
    };
    broker
        .subscribe(subscription)
        .await
        .expect("a valid subscription")
}

/// Subscribes and waits until published messages arrive: on a real broker the queue is made a moment later. Probes may still be in flight
/// then; [`next`] skips them.
async fn subscribe_bound(broker: &SharedBroker, consumer: &str, prefetch: u16) -> Deliveries {
    let mut deliveries = subscribe(broker, Channel::Changes, consumer, prefetch).await;
    let mut probe = PROBES;
    wait::until("the queue to be bound", async || {
        probe += 1;
        broker
            .publish(&change(probe))
            .await
            .map_err(|e| e.to_string())?;
        match tokio::time::timeout(Duration::from_millis(100), deliveries.next()).await {
            Ok(Some(delivery)) => {
                delivery.ack();
                Ok(())
            }
            Ok(None) => Err("the stream ended".to_owned()),
            Err(_) => Err("nothing yet".to_owned()),
        }
    })
    .await;
    deliveries
}

/// The next delivery that is not a probe.
async fn next(deliveries: &mut Deliveries) -> Delivery {
    loop {
        let delivery = tokio::time::timeout(wait::PATIENCE, deliveries.next())
            .await
            .expect("a delivery in time")
            .expect("an open stream");
        if number(&delivery) <= PROBES {
            return delivery;
        }
        delivery.ack();
    }
}

fn number(delivery: &Delivery) -> u64 {
    delivery.envelope().sent_at.get()
}

async fn every_fan_out_consumer_gets_every_message_in_order(broker: SharedBroker) {
    let mut first = subscribe_bound(&broker, "node-1", 10).await;
    let mut second = subscribe_bound(&broker, "node-2", 10).await;
    for n in 1..=20 {
        broker.publish(&change(n)).await.expect("confirmed");
    }
    for deliveries in [&mut first, &mut second] {
        for n in 1..=20 {
            let delivery = next(deliveries).await;
            assert_eq!((number(&delivery), delivery.attempt()), (n, 1));
            delivery.ack();
        }
    }
}

async fn a_shared_channel_gives_each_message_to_one_consumer(broker: SharedBroker) {
    let mut first = subscribe(&broker, Channel::Jobs, "a", 1).await;
    let mut second = subscribe(&broker, Channel::Jobs, "b", 1).await;
    for n in 1..=20 {
        broker.publish(&ticket(n)).await.expect("confirmed");
    }
    let mut seen = BTreeSet::new();
    while seen.len() < 20 {
        let delivery = tokio::select! {
            delivery = next(&mut first) => delivery,
            delivery = next(&mut second) => delivery,
        };
        assert!(
            seen.insert(number(&delivery)),
            "message {} came twice",
            number(&delivery)
        );
        delivery.ack();
    }
}

async fn messages_wait_while_their_consumer_is_away(broker: SharedBroker) {
    drop(subscribe_bound(&broker, "node-1", 10).await);
    for n in 1..=3 {
        broker.publish(&change(n)).await.expect("confirmed");
    }
    let mut again = subscribe(&broker, Channel::Changes, "node-1", 10).await;
    for n in 1..=3 {
        let delivery = next(&mut again).await;
        assert_eq!(number(&delivery), n);
        delivery.ack();
    }
}

async fn what_is_not_acknowledged_comes_again(broker: SharedBroker) {
    let mut deliveries = subscribe_bound(&broker, "node-1", 1).await;
    broker.publish(&change(1)).await.expect("confirmed");
    drop(next(&mut deliveries).await);
    let second = next(&mut deliveries).await;
    assert_eq!((number(&second), second.attempt()), (1, 2));
    second.retry();
    let third = next(&mut deliveries).await;
    assert_eq!((number(&third), third.attempt()), (1, 3));
    third.ack();
    broker.publish(&change(2)).await.expect("confirmed");
    let other = next(&mut deliveries).await;
    assert_eq!(number(&other), 2);
    other.ack();
}

async fn a_rejected_and_a_poisonous_message_end_in_the_dead_letters(broker: SharedBroker) {
    let mut deliveries = subscribe_bound(&broker, "node-1", 1).await;
    broker.publish(&change(1)).await.expect("confirmed");
    next(&mut deliveries).await.reject();
    wait::until("the rejected letter", async || dead(&broker, 1).await).await;
    broker.publish(&change(2)).await.expect("confirmed");
    for attempt in 1..=DELIVERY_LIMIT {
        let delivery = next(&mut deliveries).await;
        assert_eq!((number(&delivery), delivery.attempt()), (2, attempt));
        delivery.retry();
    }
    wait::until("the poisonous letter", async || dead(&broker, 2).await).await;
    broker.publish(&change(3)).await.expect("confirmed");
    let healthy = next(&mut deliveries).await;
    assert_eq!(
        number(&healthy),
        3,
        "a poisonous message does not block the queue"
    );
    healthy.ack();
}

async fn dead(broker: &SharedBroker, expected: u64) -> Result<(), String> {
    match broker.dead_letters(Channel::Changes).await {
        Ok(count) if count == expected => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn a_consumer_holds_no_more_than_its_prefetch(broker: SharedBroker) {
    let mut deliveries = subscribe_bound(&broker, "node-1", 2).await;
    for n in 1..=3 {
        broker.publish(&change(n)).await.expect("confirmed");
    }
    let (first, second) = (next(&mut deliveries).await, next(&mut deliveries).await);
    let third = tokio::time::timeout(Duration::from_millis(500), deliveries.next()).await;
    assert!(
        third.is_err(),
        "a third delivery came before one of two was acknowledged"
    );
    first.ack();
    assert_eq!(number(&next(&mut deliveries).await), 3);
    second.ack();
}

async fn a_full_queue_drops_the_oldest(broker: SharedBroker) {
    drop(subscribe_bound(&broker, "node-1", 1).await);
    let published = SMALL.queue as u64 + 10;
    for n in 1..=published {
        broker.publish(&change(n)).await.expect("confirmed");
    }
    let mut deliveries = subscribe(&broker, Channel::Changes, "node-1", 10).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&published) {
        let delivery = next(&mut deliveries).await;
        seen.push(number(&delivery));
        delivery.ack();
    }
    assert!(
        seen.len() <= SMALL.queue + 1,
        "{} messages were kept",
        seen.len()
    );
    assert!(
        seen.windows(2).all(|pair| pair[0] < pair[1]),
        "order is kept: {seen:?}"
    );
}

async fn a_full_queue_of_jobs_refuses_the_next_and_loses_none(broker: SharedBroker) {
    let mut taken = 0;
    // RabbitMQ checks the queue's length a moment after it accepts a message.
    while broker.publish(&ticket(taken + 1)).await.is_ok() {
        taken += 1;
        assert!(taken < 20 * SMALL.queue as u64, "nothing is refused");
    }
    assert!(taken >= SMALL.queue as u64, "{taken} were taken");
    let mut deliveries = subscribe(&broker, Channel::Jobs, "dispatcher", 10).await;
    let mut seen = BTreeSet::new();
    while seen.len() < usize::try_from(taken).expect("small") {
        let delivery = next(&mut deliveries).await;
        seen.insert(number(&delivery));
        delivery.ack();
    }
    let confirmed: BTreeSet<u64> = (1..=taken).collect();
    assert!(seen.is_superset(&confirmed), "{seen:?}");
    wait::until("room for the next", async || {
        broker.publish(&ticket(1000)).await
    })
    .await;
}

macro_rules! battery {
    ($($name:ident),* $(,)?) => {
        mod in_process {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::memory()).await;
            })*
        }

        /// The cases run one after another, so that none delays another.
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn on_rabbitmq() {
            $(
                eprintln!("case {}", stringify!($name));
                $name(rabbit().await).await;
            )*
        }
    };
}

battery!(
    every_fan_out_consumer_gets_every_message_in_order,
    a_shared_channel_gives_each_message_to_one_consumer,
    messages_wait_while_their_consumer_is_away,
    what_is_not_acknowledged_comes_again,
    a_rejected_and_a_poisonous_message_end_in_the_dead_letters,
    a_consumer_holds_no_more_than_its_prefetch,
    a_full_queue_drops_the_oldest,
    a_full_queue_of_jobs_refuses_the_next_and_loses_none,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_killed_and_started_again_loses_nothing_confirmed() {
    let mut server = rabbitmq::RabbitServer::start()
        .await
        .expect("RabbitMQ starts");
    let broker: SharedBroker = Arc::new(
        AmqpBroker::connect(options(server.url(), "restart".to_owned()))
            .expect("options are valid"),
    );
    let mut deliveries = subscribe_bound(&broker, "node-1", 5).await;
    for n in 1..=10 {
        broker.publish(&change(n)).await.expect("confirmed");
    }
    server.kill();
    assert!(
        broker.publish(&change(99)).await.is_err(),
        "nothing is confirmed while the broker is dead"
    );
    assert!(broker.check().await.is_err());
    server.restart().await.expect("RabbitMQ starts again");
    let mut seen = BTreeSet::new();
    while seen.len() < 10 {
        let delivery = next(&mut deliveries).await;
        seen.insert(number(&delivery));
        delivery.ack();
    }
    assert_eq!(seen, (1..=10).collect());
    wait::until("publishing to work again", async || {
        broker.publish(&change(11)).await
    })
    .await;
    while number(&next(&mut deliveries).await) != 11 {}
    assert!(broker.counters().reconnects >= 1);
}

/// Forwards connections to the broker at `far`, and holds back everything on them while the sender says so. Returns the port.
async fn gate(far: String) -> (u16, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (silent, held) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(&far).await else {
                continue;
            };
            let (near_in, near_out) = near.into_split();
            let (far_in, far_out) = far.into_split();
            tokio::spawn(carry(near_in, far_out, held.clone()));
            tokio::spawn(carry(far_in, near_out, held.clone()));
        }
    });
    (port, silent)
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut held: watch::Receiver<bool>) {
    let mut piece = vec![0; 4096];
    while let Ok(read) = from.read(&mut piece).await {
        let is_over = held.wait_for(|silent| !*silent).await.is_err();
        if read == 0 || is_over || to.write_all(&piece[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_becomes_silent_keeps_nobody_waiting_for_ever() {
    let server = rabbitmq::broker().await;
    let mut url = Url::parse(&server.url).expect("a URL");
    let host = url.host_str().expect("a host");
    let (port, silent) = gate(format!("{host}:{}", url.port().unwrap_or(5672))).await;
    url.set_host(Some("127.0.0.1")).expect("a host");
    url.set_port(Some(port)).expect("a port");
    let broker = AmqpBroker::connect(options(url.into(), server.namespace));
    let broker: SharedBroker = Arc::new(broker.expect("options are valid"));
    // Connected, and not yet with a channel for publishing.
    let dead = broker.dead_letters(Channel::Jobs).await;
    assert_eq!(dead.expect("counted"), 0);
    silent.send_replace(true);
    let error = broker.check().await.expect_err("no channel is opened");
    assert!(error.to_string().contains("is away"), "{error}");
    silent.send_replace(false);
    wait::until("a connection that answers", async || broker.check().await).await;
    assert!(broker.counters().reconnects >= 1);
}

#[tokio::test]
async fn a_wrong_address_is_refused_and_an_absent_broker_is_away() {
    for bad in ["", "http://127.0.0.1", "amqp:"] {
        let error = AmqpBroker::connect(options(bad.to_owned(), "x".to_owned()))
            .err()
            .expect(bad);
        assert!(error.to_string().contains("amqp://"), "{error}");
    }
    let url = format!(
        "amqp://guest:secret@127.0.0.1:{}/%2f",
        fdn_testkit::ports::local()
    );
    let broker = AmqpBroker::connect(options(url, "x".to_owned())).expect("valid");
    let error = fdn_bus::Broker::publish(&broker, &change(1))
        .await
        .expect_err("nobody is there")
        .to_string();
    assert!(
        error.contains("is away") && !error.contains("secret"),
        "{error}"
    );
}

mod soak {
    use super::*;

    /// Killed within half a second after a queue was declared, RabbitMQ 3.10 comes back with an empty queue of that name that never has a
    /// leader; without the replacement no message would ever arrive.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_queue_that_rabbitmq_does_not_bring_back_is_replaced() {
        let mut server = rabbitmq::RabbitServer::start()
            .await
            .expect("RabbitMQ starts");
        let broker: SharedBroker = Arc::new(
            AmqpBroker::connect(options(server.url(), "newborn".to_owned()))
                .expect("options are valid"),
        );
        broker
            .check()
            .await
            .expect("connected, and everything shared is declared");
        let mut deliveries = subscribe(&broker, Channel::Changes, "node-1", 5).await;
        let observer = Connection::connect(&server.url(), ConnectionProperties::default())
            .await
            .expect("connected");
        wait::until("the queue to be declared", async || {
            let channel = observer.create_channel().await?;
            let passive = QueueDeclareOptions {
                passive: true,
                ..QueueDeclareOptions::default()
            };
            channel
                .queue_declare(
                    "newborn.changes.node-1".into(),
                    passive,
                    FieldTable::default(),
                )
                .await
                .map(drop)
        })
        .await;
        server.kill();
        server.restart().await.expect("RabbitMQ starts again");
        wait::within(2 * wait::PATIENCE, "a message to arrive", async || {
            // Nothing is bound to the exchange before its queue answers, so that no publisher's confirms are delayed.
            broker
                .publish(&change(1))
                .await
                .map_err(|e| e.to_string())?;
            match tokio::time::timeout(Duration::from_millis(500), deliveries.next()).await {
                Ok(Some(delivery)) => {
                    assert_eq!(number(&delivery), 1);
                    Ok(())
                }
                Ok(None) => Err("the stream ended".to_owned()),
                Err(_) => Err(format!("nothing yet; {:?}", broker.counters())),
            }
        })
        .await;
    }
}
