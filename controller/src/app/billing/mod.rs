//! The billing centre: statements, views of usage, price lists, budgets, and the loop that closes months and gives alerts.

pub mod bill;
pub mod budgets;
pub mod prices;
pub mod rounds;
