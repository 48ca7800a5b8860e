//! The contract list: the guarantees of every runtime, one function for each.
//!
//! [`contract!`] makes a test of every guarantee for one implementation. `for_all` has those that hold for any instance; `processes`
//! those that only make sense where an instance is a process that can end or be killed by itself.

pub(crate) mod calls;
pub(crate) mod ends;
pub(crate) mod life;
pub(crate) mod starts;

macro_rules! tests {
    ($subject:expr; $($module:ident :: $name:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            crate::contract::$module::$name(&$subject.await).await;
        }
    )*};
}
pub(crate) use tests;

macro_rules! contract {
    (for_all, $subject:expr) => {
        crate::contract::tests!($subject;
            calls::a_started_instance_answers_at_once,
            calls::calls_run_at_the_same_time,
            calls::bodies_stream_in_both_directions,
            calls::variables_and_secrets_reach_it,
            calls::a_dropped_call_leaves_the_instance_usable,
            calls::memory_is_limited,
            life::stop_is_final_and_idempotent,
            life::a_description_is_kept,
            starts::a_missing_image_is_told,
            starts::an_id_is_used_once,
            starts::preparing_twice_is_harmless,
        );
    };
    (processes, $subject:expr) => {
        crate::contract::tests!($subject;
            ends::an_exit_is_seen_with_its_code_and_last_lines,
            ends::a_kill_interrupts_calls_and_is_seen,
            ends::a_body_that_is_cut_is_no_whole_body,
            ends::what_was_not_sent_comes_back_whole,
            ends::output_is_bounded,
            life::stop_lets_a_running_call_finish,
            life::stop_kills_what_does_not_end,
            life::a_new_agent_adopts_what_runs,
            life::others_are_left_alone,
            life::what_a_crash_left_is_collected,
            life::a_paused_instance_takes_no_calls,
            starts::an_exit_at_start_is_told_with_its_last_lines,
            starts::an_instance_that_never_answers_is_told,
            starts::a_dropped_start_leaves_nothing,
        );
    };
}
pub(crate) use contract;
