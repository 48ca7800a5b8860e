//! Jobs of many users, arriving at random.

use std::sync::Arc;

use fdn_core::Millis;
use fdn_scheduling::place::Cluster;
use rand::RngExt;

use super::Job;
use crate::Error;
use crate::generate::{self, Sites};
use crate::seed::Seed;

/// Sizes of jobs, each with its share.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// How many tasks, and how many jobs of 100 are of that size.
    pub sizes: Vec<(usize, u32)>,
    /// What an edge costs, as a share of what a mean task takes at the mean speed.
    pub ccr: f64,
}

impl Default for Mix {
    /// Half of the jobs 30 tasks, 40 % 100, 10 % 300; edges cost as much as tasks.
    fn default() -> Self {
        Self {
            sizes: vec![(30, 50), (100, 40), (300, 10)],
            ccr: 1.0,
        }
    }
}

impl Mix {
    /// The mean number of tasks of a job.
    #[must_use]
    pub fn mean_tasks(&self) -> f64 {
        let shares: u32 = self.sizes.iter().map(|(_, share)| share).sum();
        let tasks = self
            .sizes
            .iter()
            .map(|(n, share)| *n as f64 * f64::from(*share));
        tasks.sum::<f64>() / f64::from(shares)
    }

    fn draw(&self, rng: &mut crate::seed::Rng) -> usize {
        let shares: u32 = self.sizes.iter().map(|(_, share)| share).sum();
        let mut left = rng.random_range(0..shares.max(1));
        for (size, share) in &self.sizes {
            if left < *share {
                return *size;
            }
            left -= share;
        }
        1
    }
}

/// The mean work of a task, which is a whole number from 1 to 100 ms.
const MEAN_WORK: f64 = 50.5;

/// `count` jobs that arrive as a Poisson process, at a rate that keeps the share `load` of all slots busy; infinite load
/// sends all at once.
///
/// # Errors
/// When a job has more tasks than a DAG may have.
pub fn poisson(
    count: usize,
    load: f64,
    mix: &Mix,
    sites: &Sites,
    clusters: &[Cluster],
    seed: Seed,
) -> Result<Vec<Job>, Error> {
    let capacity: f64 = clusters
        .iter()
        .map(|c| c.speed.get() * c.slots.len() as f64)
        .sum();
    let mean_gap = mix.mean_tasks() * MEAN_WORK / (capacity * load);
    let (mut times, mut sizes) = (seed.stream("arrivals"), seed.stream("sizes"));
    let speed = generate::mean_speed(clusters);
    let mut at = 0.0;
    (0..count as u64)
        .map(|n| {
            // Exponential gaps, by inversion; 1 - U is never 0.
            at -= (1.0 - times.random::<f64>()).ln() * mean_gap;
            let own = seed.nth(n);
            Ok(Job {
                at: Millis::new(at),
                dag: Arc::new(generate::dag(mix.draw(&mut sizes), mix.ccr, speed, own)?),
                distance: sites.draw_distance(own),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_share_of_all_slots_that_the_work_keeps_busy() {
        let (mix, sites) = (Mix::default(), Sites::default());
        let clusters = sites.draw(Seed(2));
        let jobs = poisson(2000, 0.7, &mix, &sites, &clusters, Seed(2)).expect("small jobs");
        let work: f64 = jobs
            .iter()
            .flat_map(|job| job.dag.indices().map(|task| job.dag.task(task).work.get()))
            .sum();
        let slots: f64 = clusters.iter().map(|c| c.speed.get() * 4.0).sum();
        let load = work / (slots * jobs[1999].at.get());
        assert!((load - 0.7).abs() < 0.04, "{load}");
        assert!(jobs.is_sorted_by_key(|job| job.at));
        let large = jobs.iter().filter(|job| job.dag.len() == 300).count();
        assert!((150..250).contains(&large), "{large}");
    }

    #[test]
    fn at_infinite_load_all_arrive_at_once() {
        let sites = Sites::default();
        let clusters = sites.draw(Seed(2));
        let jobs = poisson(
            5,
            f64::INFINITY,
            &Mix::default(),
            &sites,
            &clusters,
            Seed(1),
        );
        assert!(
            jobs.expect("small jobs")
                .iter()
                .all(|job| job.at == Millis::ZERO)
        );
    }
}
