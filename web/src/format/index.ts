export * from "./numbers";
export * from "./times";
export * from "./places";
