export { LineChart, type Series } from "./LineChart";
export { filled, ticks, type Point } from "./scale";
export { Spark } from "./Spark";
export { useSize } from "./useSize";
