//! How long the processes of a test's network wait for things.

/// Which deadlines the processes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadlines {
    /// Those of the product, for tests of when something happens and of what survives a death.
    Shipped,
    /// So long that a busy machine keeps them, for tests of what happens.
    Long,
}

impl Deadlines {
    /// Of the controller, after its section of uploads has begun.
    pub(crate) const fn of_uploads_and_logs(self) -> &'static str {
        match self {
            Self::Shipped => "",
            Self::Long => "compile_time = \"10m\"\n[function_logs]\nnode_timeout = \"30s\"\n",
        }
    }

    /// Of DNS.
    pub(crate) const fn of_dns(self) -> &'static str {
        match self {
            Self::Shipped => "",
            Self::Long => "[health]\ntimeout = \"10s\"\n",
        }
    }

    /// Of a node.
    pub(crate) const fn of_agent(self) -> &'static str {
        match self {
            Self::Shipped => "",
            Self::Long => {
                "[admission]\nwait = \"60s\"\nhold = \"60s\"\n[compile]\ntimeout = \"10m\"\n"
            }
        }
    }
}
