// Wakes the parts of the page that need scripts.

startTable();
if (run.deciding) startDeciding();
startPlots();
