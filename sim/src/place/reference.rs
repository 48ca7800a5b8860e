//! What a public library's HEFT with insertion makes of the recorded workflows.

/// Makespans of one workflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference {
    /// The instance: the name of its file without the endings.
    pub name: &'static str,
    /// On [`edge5`](super::NetworkModel::edge5), to 0.01 s.
    pub edge5_s: f64,
    /// On [`edge3u`](super::NetworkModel::edge3u), to 0.01 s.
    pub edge3u_s: f64,
}

const fn row(name: &'static str, edge5_s: f64, edge3u_s: f64) -> Reference {
    Reference {
        name,
        edge5_s,
        edge3u_s,
    }
}

/// Every workflow, the one with the fewest tasks first.
pub const REFERENCE: [Reference; 23] = [
    row("helloworld-forkjoin-10", 256.47, 308.08),
    row("srasearch-10a-001", 1129.77, 1772.54),
    row("methylseq-dirt02-001", 103.92, 136.14),
    row("epigenomics-hep-1seq-100k-001", 106.29, 154.66),
    row("blast-small-001", 62.07, 95.86),
    row("1000genome-2ch-100k-001", 455.34, 711.48),
    row("montage-dss-05d-001", 933.51, 1398.51),
    row("cycles-1l-1c-9p-001", 134.46, 216.47),
    row("soykb-10fastq-10ch-001", 2470.09, 3168.97),
    row("seismology-100p-001", 11.12, 18.03),
    row("montage-2mass-01d-001", 59.02, 91.59),
    row("srasearch-50a-001", 10140.46, 16477.85),
    row("bwa-small-001", 86.66, 115.34),
    row("cycles-1l-2c-9p-001", 511.41, 828.52),
    row("rnaseq-dirt02-001", 409.41, 645.79),
    row("soykb-30fastq-10ch-001", 7093.05, 9428.65),
    row("1000genome-10ch-100k-001", 2467.07, 4008.15),
    row("blast-medium-001", 4883.76, 7879.96),
    row("montage-dss-10d-001", 5856.40, 9276.83),
    row("seismology-500p-001", 44.42, 72.11),
    row("epigenomics-ilmn-2seq-50k-001", 1378.57, 2221.49),
    row("1000genome-22ch-250k-001", 8217.41, 13352.82),
    row("epigenomics-hep-7seq-50k-001", 3557.51, 5700.43),
];
