//! The Protocol Buffers messages. See [`super`].

use bytes::Bytes;

/// Several messages, in the order in which they were sent.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Frame {
    #[prost(message, repeated, tag = "1")]
    pub(crate) items: Vec<Item>,
}

/// One message.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Item {
    #[prost(
        oneof = "Body",
        tags = "1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, \
                21, 22"
    )]
    pub(crate) body: Option<Body>,
}

impl From<Body> for Item {
    fn from(body: Body) -> Self {
        Self { body: Some(body) }
    }
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Body {
    /// The first message of each side.
    #[prost(message, tag = "1")]
    Hello(Hello),
    /// The receiver is not admitted; contains the reason.
    #[prost(message, tag = "2")]
    Rejected(Rejected),
    #[prost(message, tag = "4")]
    Task(Task),
    #[prost(message, tag = "5")]
    Probe(Probe),
    #[prost(message, tag = "6")]
    Reply(Reply),
    #[prost(message, tag = "7")]
    Release(Attempt),
    #[prost(message, tag = "8")]
    Fence(Fence),
    #[prost(message, tag = "9")]
    Notice(Notice),
    #[prost(message, tag = "10")]
    Started(Started),
    #[prost(message, tag = "11")]
    Refused(Refused),
    /// The task was passed on to a node that is lost.
    #[prost(message, tag = "12")]
    Broken(Attempt),
    #[prost(message, tag = "13")]
    Fenced(Fenced),
    /// News or a question about an instance that was started for a task.
    #[prost(message, tag = "14")]
    Instance(Instance),
    #[prost(message, tag = "15")]
    Ping(Ping),
    #[prost(message, tag = "16")]
    Ack(Ack),
    #[prost(message, tag = "17")]
    Members(Members),
    #[prost(message, tag = "18")]
    Ballot(Ballot),
    #[prost(message, tag = "19")]
    Loads(Loads),
    /// The sender leaves: it has stopped acting.
    #[prost(message, tag = "20")]
    Leave(Key),
    /// Asks the receiver to list the instances that it runs for the sender.
    #[prost(message, tag = "21")]
    Recount(Recount),
    #[prost(message, tag = "22")]
    Running(Running),
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Recount {}

/// A piece of the list of instances that the sender runs for the receiver.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Running {
    /// The number of the piece, from 0.
    #[prost(uint32, tag = "1")]
    pub(crate) at: u32,
    /// Tasks from this id to `last` that are not in the list are not running.
    #[prost(fixed64, tag = "2")]
    pub(crate) first: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) last: u64,
    #[prost(fixed64, repeated, tag = "4")]
    pub(crate) ids: Vec<u64>,
    /// Only in the last piece: the sum over all instances.
    #[prost(fixed64, optional, tag = "5")]
    pub(crate) sum: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Key {
    #[prost(uint32, tag = "1")]
    pub(crate) tag: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) incarnation: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Member {
    #[prost(message, required, tag = "1")]
    pub(crate) key: Key,
    #[prost(string, tag = "2")]
    pub(crate) node: String,
    /// `host:port`.
    #[prost(string, tag = "3")]
    pub(crate) address: String,
    #[prost(message, required, tag = "4")]
    pub(crate) capacity: Resources,
    #[prost(bool, tag = "5")]
    pub(crate) candidate: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Hello {
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
    #[prost(string, tag = "2")]
    pub(crate) cluster: String,
    #[prost(message, required, tag = "3")]
    pub(crate) member: Member,
    /// Whether the sender is a member already.
    #[prost(bool, tag = "4")]
    pub(crate) joined: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Rejected {
    #[prost(string, tag = "1")]
    pub(crate) reason: String,
    /// The receiver should take another tag, or its next incarnation.
    #[prost(bool, tag = "2")]
    pub(crate) renew: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Resources {
    #[prost(uint64, tag = "1")]
    pub(crate) cpu_milli: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) memory_mib: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) gpu_memory_mib: u64,
}

/// How a task reaches the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum TaskDelivery {
    Submit = 0,
    Hint = 1,
    Assign = 2,
    Place = 3,
    Forward = 4,
    Bounce = 5,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Task {
    #[prost(enumeration = "TaskDelivery", tag = "1")]
    pub(crate) delivery: i32,
    #[prost(fixed64, tag = "2")]
    pub(crate) id: u64,
    #[prost(uint32, tag = "3")]
    pub(crate) attempt: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) leg: u32,
    #[prost(message, required, tag = "5")]
    pub(crate) demand: Resources,
    #[prost(double, tag = "6")]
    pub(crate) remaining: f64,
    #[prost(double, tag = "7")]
    pub(crate) deadline: f64,
    /// The number of hops of a hint, or the serial number of a placement.
    #[prost(uint64, tag = "8")]
    pub(crate) number: u64,
    /// The epoch of the head that the task goes to, or that has placed it.
    #[prost(uint32, tag = "9")]
    pub(crate) epoch: u32,
    /// The number of the attempt among all attempts of its submitter.
    #[prost(uint64, tag = "10")]
    pub(crate) issue: u64,
    /// What to start.
    #[prost(bytes = "bytes", tag = "11")]
    pub(crate) payload: Bytes,
    /// The trace of the task: see [`crate::trace::push`].
    #[prost(fixed64, repeated, tag = "12")]
    pub(crate) hops: Vec<u64>,
    /// Only with a bounce: the sender's report.
    #[prost(message, optional, tag = "13")]
    pub(crate) report: Option<NodeReport>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Attempt {
    #[prost(fixed64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) attempt: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Probe {
    #[prost(fixed64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) attempt: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) leg: u32,
    #[prost(message, required, tag = "4")]
    pub(crate) demand: Resources,
    #[prost(double, tag = "5")]
    pub(crate) deadline: f64,
    #[prost(bool, tag = "6")]
    pub(crate) wait: bool,
    #[prost(uint64, tag = "7")]
    pub(crate) issue: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Reply {
    #[prost(fixed64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) attempt: u32,
    #[prost(bool, tag = "3")]
    pub(crate) yes: bool,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Fence {
    #[prost(fixed64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) attempt: u32,
    #[prost(double, tag = "3")]
    pub(crate) deadline: f64,
    /// The epoch of the global scheduler that is addressed; 0: the node is.
    #[prost(uint32, tag = "4")]
    pub(crate) epoch: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct NodeReport {
    #[prost(uint64, tag = "1")]
    pub(crate) version: u64,
    #[prost(message, required, tag = "2")]
    pub(crate) free: Resources,
    #[prost(uint64, tag = "3")]
    pub(crate) seen: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Notice {
    #[prost(message, required, tag = "1")]
    pub(crate) report: NodeReport,
    #[prost(uint32, tag = "2")]
    pub(crate) epoch: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Started {
    #[prost(fixed64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) attempt: u32,
    #[prost(fixed64, repeated, tag = "3")]
    pub(crate) hops: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Refused {
    #[prost(fixed64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) attempt: u32,
    /// 0 queue full, 1 memory full, 2 no room, 3 too large, 4 expired.
    #[prost(uint32, tag = "3")]
    pub(crate) refusal: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Fenced {
    #[prost(fixed64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) attempt: u32,
    /// Whether this is the answer of the global scheduler, not of the node.
    #[prost(bool, tag = "3")]
    pub(crate) global: bool,
    #[prost(bool, tag = "4")]
    pub(crate) started: bool,
}

/// A message about an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum InstanceMessage {
    /// Node to submitter: it has ended.
    Ended = 0,
    /// Node to submitter: it still runs, though the node was given up and has joined again. Is it wanted?
    Held = 1,
    /// Submitter to node: it is wanted.
    Keep = 2,
    /// Submitter to node: another instance runs in its place; end it.
    Surplus = 3,
    /// Node to submitter: it could not be started.
    Failed = 4,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Instance {
    #[prost(fixed64, tag = "1")]
    pub(crate) id: u64,
    #[prost(enumeration = "InstanceMessage", tag = "2")]
    pub(crate) message: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Opinions {
    #[prost(message, repeated, tag = "1")]
    pub(crate) suspects: Vec<Key>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) condemned: Vec<Key>,
    #[prost(fixed64, tag = "3")]
    pub(crate) digest: u64,
    /// The epoch of the head that the sender knows; 0 if none.
    #[prost(uint32, tag = "4")]
    pub(crate) epoch: u32,
    #[prost(message, optional, tag = "5")]
    pub(crate) head: Option<Key>,
    /// The highest epoch of which the sender has heard, except one for which it asks votes itself.
    #[prost(uint32, tag = "6")]
    pub(crate) highest: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ping {
    /// The time by the sender's clock; returned in the answer.
    #[prost(double, tag = "1")]
    pub(crate) sent: f64,
    #[prost(message, required, tag = "2")]
    pub(crate) opinions: Opinions,
    /// The sender's attempts from this number on may start at the receiver; absent until the sender knows the receiver as a member.
    #[prost(uint64, optional, tag = "3")]
    pub(crate) admitted: Option<u64>,
    /// The sum over the instances that the sender runs for the receiver.
    #[prost(fixed64, optional, tag = "4")]
    pub(crate) tally: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ack {
    #[prost(double, tag = "1")]
    pub(crate) sent: f64,
    #[prost(bool, tag = "2")]
    pub(crate) granted: bool,
    #[prost(message, required, tag = "3")]
    pub(crate) opinions: Opinions,
    /// The time by the clock of the answering node.
    #[prost(double, tag = "4")]
    pub(crate) clock: f64,
    /// As in a ping.
    #[prost(uint64, optional, tag = "5")]
    pub(crate) admitted: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Gossip {
    /// A member; if absent, `gone` is set.
    #[prost(message, optional, tag = "1")]
    pub(crate) member: Option<Member>,
    #[prost(bool, tag = "2")]
    pub(crate) draining: bool,
    #[prost(message, optional, tag = "3")]
    pub(crate) gone: Option<Key>,
    /// Whether most counting members do not know of the member yet.
    #[prost(bool, tag = "4")]
    pub(crate) is_new: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Members {
    #[prost(message, repeated, tag = "1")]
    pub(crate) gossip: Vec<Gossip>,
}

/// The kind of a ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum BallotKind {
    Ask = 0,
    Vote = 1,
    Head = 2,
    Stale = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Ballot {
    #[prost(enumeration = "BallotKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) epoch: u32,
    #[prost(bool, tag = "3")]
    pub(crate) has_lease: bool,
    #[prost(message, optional, tag = "4")]
    pub(crate) head: Option<Key>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Load {
    #[prost(uint32, tag = "1")]
    pub(crate) tag: u32,
    #[prost(message, required, tag = "2")]
    pub(crate) free: Resources,
}

/// What the head believes to be free on every node.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Loads {
    #[prost(uint32, tag = "1")]
    pub(crate) epoch: u32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) loads: Vec<Load>,
}
