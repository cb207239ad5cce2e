// Wakes the parts of the page that need scripts; what they replace is kept for print.

document.documentElement.classList.add("has-scripts");
if (images) startTable();
if (images && run.deciding) startDeciding();
startPlots();
