//! TCP connections: pipelined, with limits on number and time.

use fdn_core::DurationMs;
use fdn_testkit::wait;
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::Fixture;

fn framed(id: u16) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(
        Name::from_ascii("hello.fn.test.").expect("name"),
        RecordType::A,
    ));
    let bytes = message.to_vec().expect("encoded");
    [
        &u16::try_from(bytes.len()).expect("short").to_be_bytes(),
        bytes.as_slice(),
    ]
    .concat()
}

async fn read(stream: &mut TcpStream) -> Message {
    let len = stream.read_u16().await.expect("a length");
    let mut bytes = vec![0; usize::from(len)];
    stream.read_exact(&mut bytes).await.expect("a message");
    Message::from_vec(&bytes).expect("decoded")
}

#[tokio::test(flavor = "multi_thread")]
async fn many_queries_share_a_connection_in_order() {
    let fixture = Fixture::with_hello(|_| {}).await;
    let mut stream = TcpStream::connect(fixture.dns.address())
        .await
        .expect("connected");
    let all: Vec<u8> = (0..100).flat_map(framed).collect();
    // The messages arrive in pieces that are not aligned with them.
    for piece in all.chunks(37) {
        stream.write_all(piece).await.expect("sent");
    }
    for id in 0..100 {
        let answer = read(&mut stream).await;
        assert_eq!((answer.metadata.id, answer.answers.len()), (id, 2));
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_message_does_not_hold_a_connection() {
    let fixture = Fixture::with_hello(|s| s.tcp.idle = DurationMs::from_millis(300)).await;
    let message = framed(1);
    // If the machine is busy for longer than that, the connection is closed before the query is sent.
    let mut stream = wait::until("a first answer", async || {
        let mut stream = TcpStream::connect(fixture.dns.address()).await?;
        stream.write_all(&message).await?;
        let len = stream.read_u16().await?;
        stream.read_exact(&mut vec![0; usize::from(len)]).await?;
        Ok::<_, std::io::Error>(stream)
    })
    .await;
    drop(stream.write_all(&message[..10]).await);
    // Bytes that arrive slowly do not extend the time for the whole message.
    let (mut reader, mut writer) = stream.into_split();
    let trickle = tokio::spawn(async move {
        for byte in &message[10..] {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            if writer.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
    });
    let mut rest = Vec::new();
    // The connection may be reset, because unread data was in flight.
    drop(reader.read_to_end(&mut rest).await);
    assert!(rest.is_empty(), "closed without an answer");
    trickle.abort();
    wait::until("the connection to be given back", async || {
        let (_, metrics) = fixture.admin("/metrics").await;
        if metrics.contains("fdn_dns_tcp_open 0") {
            Ok(())
        } else {
            Err("it is open")
        }
    })
    .await;
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_cannot_take_all_connections() {
    let fixture = Fixture::with_hello(|s| s.tcp.per_client = 2).await;
    let mut kept = Vec::new();
    for id in 0..2 {
        let mut stream = TcpStream::connect(fixture.dns.address())
            .await
            .expect("connected");
        stream.write_all(&framed(id)).await.expect("sent");
        assert_eq!(read(&mut stream).await.metadata.id, id);
        kept.push(stream);
    }
    let mut third = TcpStream::connect(fixture.dns.address())
        .await
        .expect("accepted by the kernel");
    let mut rest = Vec::new();
    drop(third.read_to_end(&mut rest).await);
    assert!(rest.is_empty());
    drop(kept.pop());
    wait::until("a place to be free again", async || {
        let mut stream = TcpStream::connect(fixture.dns.address())
            .await
            .map_err(|e| e.to_string())?;
        stream
            .write_all(&framed(9))
            .await
            .map_err(|e| e.to_string())?;
        stream.read_u16().await.map_err(|e| e.to_string())
    })
    .await;
    fixture.dns.stop().await;
}
